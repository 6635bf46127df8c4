"""What the job system tells and asks about its lanes: hints, never decisions.

Nothing here raises, and nothing blocks longer than ``LANES_TIMEOUT``: without a server (none
configured, none reachable) every answer is "go on", and the heartbeat on the job's row finds out
later what a signal would have told at once. ``Advice.LOOK`` and ``beat`` name jobs whose row should
be asked; only the row ends a run.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from django_jobs.errors import LaneKeyTaken, LanesUnavailable
from django_jobs.lanes import scripts, wiring
from django_jobs.lanes.deadlines import within
from django_jobs.lanes.keys import lane_keys
from django_jobs.lanes.limits import BASE, milliseconds_to_live, plain, token_text
from django_jobs.lanes.scripts import Script, ScriptCall

if TYPE_CHECKING:
    from django_jobs.lanes.server import Server

logger = logging.getLogger("django_jobs.lanes")

_TTL = BASE * 1000

CHUNK = 500
"""Calls in one round trip: a script takes microseconds, and the server does one at a time."""

_foreign: set[str] = set()
"""Keys that something else wrote and that were logged; a beat meets them every half second."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One job's claim on its lane. ``delay``: seconds until the job is due.

    Raises ``ValueError`` for an empty name or lane, and for a token or a delay that is no finite
    number from 0 up.
    """

    name: str
    tenant: str
    lane: str
    job_id: UUID
    token: int
    delay: float = 0.0

    def __post_init__(self) -> None:
        plain(self.name, "name")
        plain(self.tenant, "tenant", empty=True)
        plain(self.lane, "lane")
        token_text(self.token)
        milliseconds_to_live(self.delay)


class Advice(enum.Enum):
    """``GO``: nothing newer is known. ``LOOK``: ask the job's row before going on."""

    GO = "go"
    LOOK = "look"


def available() -> bool:
    """Whether signals can be expected to arrive: a server is configured and answered last."""
    server = wiring.server()
    return server is not None and server.breaker.closed


def claim_many(claims: Sequence[Claim]) -> None:
    """Tell that these jobs were published: one round trip, after the commit."""
    # Of one lane only the newest can run: the others were superseded in the same transaction.
    newest: dict[tuple[str, str, str], Claim] = {}
    for claim in claims:
        lane = (claim.name, claim.tenant, claim.lane)
        if lane not in newest or newest[lane].token < claim.token:
            newest[lane] = claim
    _ask(
        scripts.CLAIM, list(newest.values()), lambda claim: (milliseconds_to_live(claim.delay), "")
    )


def reclaim(claims: Sequence[Claim]) -> None:
    """Claim although a greater token stands: the row says that the key has another history.

    So it is after the database was restored from a backup, or when two installations share one
    prefix.
    """
    for claim, _ in _ask(scripts.CLAIM, claims, lambda _: (_TTL, "force")):
        logger.warning(
            "lane key from another history: job %s %s holds its row, its lane is claimed anew",
            claim.name,
            claim.job_id,
        )


def start(claim: Claim) -> Advice:
    """A job is about to run: claim its lane, and hear whether something newer is known."""
    answers = _ask(scripts.START, [claim], lambda _: (_TTL,))
    superseded = any(outcome == "superseded" for _, outcome in answers)
    return Advice.LOOK if superseded else Advice.GO


def beat(claims: Sequence[Claim]) -> set[UUID]:
    """Keep the claims of running jobs, in one round trip; the ids whose row should be asked."""
    answers = _ask(scripts.BEAT, claims, lambda _: (_TTL,))
    return {claim.job_id for claim, outcome in answers if outcome == "usurped"}


def finish(claims: Sequence[Claim]) -> None:
    """These jobs have ended for good: neither they nor anything older waits in their lanes."""
    _ask(scripts.FINISH, claims, lambda _: ())


Arguments = Callable[[Claim], tuple[object, ...]]


def _ask(script: Script, claims: Sequence[Claim], arguments: Arguments) -> list[tuple[Claim, str]]:
    """Each claim with the first word of its reply; what got no reply is left out."""
    server = wiring.server()
    if server is None or not claims or server.breaker.pausing:
        return []
    try:
        root = wiring.root()
    except Exception as error:
        # The installation's name could not be read: the database is away, or closed to us.
        server.breaker.failed(error)
        return []
    answers: list[tuple[Claim, str]] = []
    began = time.monotonic()
    with within(server.timeout):
        for first in range(0, len(claims), CHUNK):
            # What cannot be told in time is left to the heartbeats: it is no outage.
            if time.monotonic() - began > server.timeout / 2:
                break
            chunk = claims[first : first + CHUNK]
            answers += _exchange(server, root, script, chunk, arguments)
    return answers


def _exchange(
    server: Server, root: str, script: Script, claims: Sequence[Claim], arguments: Arguments
) -> list[tuple[Claim, str]]:
    calls = [
        ScriptCall.on(
            script,
            lane_keys(root, claim.name, claim.tenant, claim.lane),
            str(claim.job_id),
            token_text(claim.token),
            *arguments(claim),
        )
        for claim in claims
    ]
    try:
        replies = server.call(calls)
    except LanesUnavailable:
        return []  # The breaker has said so.
    answers = []
    for claim, reply in zip(claims, replies, strict=True):
        if isinstance(reply, LaneKeyTaken):
            _tell_once(claim, reply)
        else:
            answers.append((claim, reply[0]))
    return answers


def _tell_once(claim: Claim, error: LaneKeyTaken) -> None:
    if error.key not in _foreign and len(_foreign) < 1000:
        _foreign.add(error.key)
        logger.error("lane %r of job %s: %s", claim.lane, claim.name, error)
