"""Admission: which staged entries may become jobs now, fair to tenants, up to ``MAX_READY``.

The relay takes what is staged for each tenant of each queue in turn. Where a queue is full, its
entries stay in the outbox, the durable buffer, and are admitted as room appears. Entries that need
no room (a due time to come, ``bypass=True``) go on. Those of a lane are published at once, over the
limit as blocked rows, so that older runs of the lane stop now; they share the room that appears
with the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django_jobs import conf
from django_jobs.models import depths, picking, publishing
from django_jobs.models.job import Job
from django_jobs.models.lane import LaneKey
from django_jobs.models.turns import Claimed


@dataclass(frozen=True, slots=True)
class Admitted:
    """What one chunk takes: ``lanes`` by ``seq``, ascending; those of ``blocked`` get no room yet.

    ``unblocked`` counts rows of earlier chunks that got theirs.
    """

    lanes: Mapping[int, LaneKey | None] = field(default_factory=dict)
    blocked: frozenset[int] = frozenset()
    unblocked: int = 0


class Admission:
    """Admission from one outbox, as one process remembers it. ``alias`` is the outbox's."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._served: dict[str, str] = {}
        self._unblocked: dict[str, str] = {}
        self._odd = 0

    def admit(self, token: UUID, *, limit: int, lease: float) -> Admitted:
        """Lease the next chunk of at most ``limit`` entries for ``lease`` seconds."""
        again = [
            queue
            for queue, gauge in depths.known().items()
            if gauge.due or (gauge.overflowing and not gauge.fresh)
        ]
        if again:
            depths.look(again)
        # A slot that is left over when room is halved goes to the rows and to the buffer by turns.
        self._odd ^= 1
        unblocked = self._unblock(limit, lambda room: (room + self._odd) // 2)
        claims = picking.retrying(
            lambda: publishing.outbox(self.alias).claim(
                token, limit=limit, lease=lease, places=self._places()
            )
        )
        stale = {c.queue for c in claims.values() if _wants_room(c)} - _fresh()
        if stale or not (claims or depths.looked_lately()):
            depths.look(stale)
        admitted, surplus = self._sort(claims)
        publishing.outbox(self.alias).release(token, surplus)
        if not claims:
            unblocked += self._unblock(limit, lambda room: room)
        return Admitted(
            lanes={seq: claims[seq].lane for seq in claims if seq not in surplus},
            blocked=admitted,
            unblocked=unblocked,
        )

    def _places(self) -> list[dict[str, Any]]:
        """What the claim should know: rooms of the queues that may be full, and whose turn it is.

        A queue whose count is old is not named: it is counted once something of it was claimed.
        """
        rooms = {q: g.room for q, g in depths.known().items() if g.fresh or g.room == 0}
        return [
            {"buffer": name, "room": rooms.get(name), "after": self._served.get(name)}
            for name in sorted({*rooms, *self._served})
        ]

    def _sort(self, claims: Mapping[int, Claimed]) -> tuple[frozenset[int], set[int]]:
        """Which of ``claims`` are to be blocked, and which have no room: the last in turn."""
        blocked, surplus = set(), set()
        gauges = depths.known()
        for seq, claim in sorted(claims.items(), key=lambda item: item[1].turn):
            gauge = gauges.get(claim.queue)
            if gauge is None or not _wants_room(claim):
                self._served[claim.buffer] = claim.tenant
                continue
            if claim.lane is not None:
                self._served[claim.buffer] = claim.tenant
                if gauge.overflowing or not gauge.room:
                    gauge.waiting = True
                    blocked.add(seq)
                    continue
            elif not gauge.room:
                surplus.add(seq)
                continue
            self._served[claim.buffer] = claim.tenant
            depths.count(claim.queue, 1)
        return frozenset(blocked), surplus

    def _unblock(self, limit: int, share: Callable[[int], int]) -> int:
        """Give a share of each queue's room to the rows that wait for it; how many got some."""
        if self.alias != conf.current().database:
            return 0
        gauges = depths.known()
        asked = {
            queue: room
            for queue, gauge in gauges.items()
            if gauge.waiting and (room := share(min(gauge.room, limit)))
        }
        places = [
            {"buffer": queue, "room": room, "after": self._unblocked.get(queue)}
            for queue, room in asked.items()
        ]
        rows = picking.retrying(lambda: Job.objects.all().unblock(places))
        for queue, tenant in rows:
            self._unblocked[queue] = tenant
            depths.count(queue, 1)
            asked[queue] -= 1
        for queue, missing in asked.items():
            gauges[queue].waiting = missing <= 0
        return len(rows)


def _wants_room(claim: Claimed) -> bool:
    return bool(claim.buffer) or claim.lane is not None


def _fresh() -> set[str]:
    return {queue for queue, gauge in depths.known().items() if gauge.fresh}


_admissions: dict[str, Admission] = {}


def of(alias: str) -> Admission:
    """This process's admission from the outbox ``alias``."""
    return _admissions.setdefault(alias, Admission(alias))


def revive() -> int:
    """Give quarantined entries one more chance, once; how many there were.

    Only in queues that are below their low water and for which nothing waits.
    """
    limit = conf.current().publish_attempts
    revived = 0
    for alias in conf.current().outbox_aliases:
        rows = publishing.outbox(alias)
        for queue in rows.quarantined_queues():
            gauge = depths.gauge_of(queue)
            if gauge.low and not gauge.waiting and not depths.is_buffered(queue):
                revived += rows.revive(queue, limit=limit)
    return revived
