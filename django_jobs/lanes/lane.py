"""The primitive: a lane of which the newest holder wins. Also for work that is no job.

A *token* says who is newer. Draw it where order is made, from one counter of a database (a
sequence, or a version column that every writer increments), never from a clock. Two holders of a
lane never have the same token.

The five calls commute: whatever order they arrive in, and however often each, the same holder holds
the lane and the same holders are told to stop. They are advice. What must not happen twice is
decided by the database.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from django_jobs.errors import LaneError, LaneKeyTaken, LanesUnavailable
from django_jobs.lanes import scripts, wiring
from django_jobs.lanes.keys import LaneKeys, decode, encode, lane_keys
from django_jobs.lanes.limits import (
    BASE,
    LONGEST_HOLDER,
    milliseconds_to_live,
    plain,
    token_text,
)
from django_jobs.lanes.results import (
    Claimed,
    Displaced,
    Held,
    Holder,
    Release,
    Released,
    Started,
    Superseded,
    Usurped,
)
from django_jobs.lanes.scripts import Script, ScriptCall

logger = logging.getLogger("django_jobs.lanes")

_TTL = BASE * 1000


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane: what is done (``name``), for whom (``tenant``), and on what (``key``).

    ``tenant`` may be ``""``. A lane of a job has the job's name and its lane text: give other work
    another name. Raises ``ValueError`` for an empty name or key.

    Calls raise ``ValueError`` before anything is sent, ``LanesUnavailable`` when no server is
    configured or it does not answer within ``LANES_TIMEOUT``, and ``LaneKeyTaken`` when something
    else wrote to the lane's key.
    """

    name: str
    tenant: str
    key: str

    def __post_init__(self) -> None:
        plain(self.name, "a lane's name")
        plain(self.tenant, "a lane's tenant", empty=True)
        plain(self.key, "a lane's key")

    def claim(self, holder: str, token: int, delay: float | None = None) -> Claimed | Displaced:
        """Take the lane, and have every smaller token told to stop.

        ``delay``: seconds until the work is due. The claim lasts 300 seconds longer, and each
        ``start`` and ``beat`` renews it.
        """
        outcome, other = self._call(scripts.CLAIM, holder, token, milliseconds_to_live(delay), "")
        if outcome == "claimed":
            return Claimed(other)
        return Displaced(other)

    def start(self, holder: str, token: int) -> Started | Superseded:
        """Say that the work begins: claims the lane, unless something newer is known."""
        outcome, other = self._call(scripts.START, holder, token, _TTL)
        return Superseded(other or "") if outcome == "superseded" else Started()

    def beat(self, holder: str, token: int) -> Held | Usurped:
        """Say that the work goes on: renews the claim, or tells of something newer, each time."""
        outcome, other = self._call(scripts.BEAT, holder, token, _TTL)
        return Usurped(other or "") if outcome == "usurped" else Held()

    def finish(self, holder: str, token: int) -> bool:
        """Say that the work has ended for good; whether the claim was there still.

        Takes out all smaller tokens too: they stay superseded. Do not use the token again.
        """
        return self._call(scripts.FINISH, holder, token)[0] == "finished"

    def release(self, holder: str, token: int, previous: str | None = None) -> Released:
        """Withdraw a claim as if it had never been: who held the lane before holds it again.

        ``previous``: what ``claim`` told. It is freed from our tombstone even when the lane has
        forgotten its claim. Meant for an ``except`` block: a server that does not answer is
        logged with the lane's name and reported as ``Release.UNKNOWN``, so that the error which
        led here is the one that the caller sees.
        """
        if previous is not None:
            plain(previous, "previous", longest=LONGEST_HOLDER)
        call = self._request(scripts.RELEASE, holder, token, encode(previous or ""))
        try:
            outcome, other = self._answer(call)
        except LaneError as error:
            logger.error("lane %r was not released by %r: %s", self, holder, error)
            return Released(Release.UNKNOWN)
        return Released(Release(outcome), other)

    def holder(self) -> Holder | None:
        """Who holds the lane now."""
        call = self._request(scripts.HOLDER, "-", 0)
        holder, token, milliseconds = self._reply(call)
        if not holder:
            return None
        return Holder(decode(holder), int(token), int(milliseconds) / 1000)

    def keys(self) -> LaneKeys:
        """The names of this lane's keys on the server."""
        return lane_keys(wiring.root(), self.name, self.tenant, self.key)

    def _call(
        self, script: Script, holder: str, token: int, *more: object
    ) -> tuple[str, str | None]:
        return self._answer(self._request(script, holder, token, *more))

    def _request(self, script: Script, holder: str, token: int, *more: object) -> ScriptCall:
        text = token_text(token)
        plain(holder, "holder", longest=LONGEST_HOLDER)
        return ScriptCall.on(script, self.keys(), holder, text, *more)

    def _answer(self, call: ScriptCall) -> tuple[str, str | None]:
        outcome, other = self._reply(call)
        return outcome, decode(other) or None

    def _reply(self, call: ScriptCall) -> tuple[str, ...]:
        server = wiring.server()
        if server is None:
            raise LanesUnavailable(
                "DJANGO_JOBS['LANES_CACHE'] is not set: name a cache alias of django-redis there."
            )
        (reply,) = server.call([call])
        if isinstance(reply, LaneKeyTaken):
            raise reply
        return reply
