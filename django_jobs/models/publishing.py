"""Publishing: entries become jobs, each key at most once while a job holds it.

The only statements that insert into the job table are called from here, by the relay and by an
enqueue outside a transaction alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django_jobs.errors import PublishError
from django_jobs.models import picking, superseding
from django_jobs.models.lane import LaneKey, lock_and_draw
from django_jobs.models.outbox import (
    DEDUPED,
    ENTRY_TYPES,
    PUBLISHED,
    REFUSED,
    Entry,
    Outbox,
    OutboxQuerySet,
)
from django_jobs.models.superseding import Announced, Rival, Superseded

_STAGING_ONLY = ("batch", "on_conflict", "bypass")
PUBLISH_TYPES: Mapping[str, str] = {
    **{name: kind for name, kind in ENTRY_TYPES.items() if name not in _STAGING_ONLY},
    "staged_at": "timestamptz",
    "lane_token": "bigint",
    "blocked": "bool",
}
_HOLDER_TYPES = {
    name: ENTRY_TYPES[name] for name in ("id", "name", "tenant", "idempotency_key", "lane")
}
_TRIES = 3

PATIENCE = 1.0
"""Seconds for which a relay waits for a lock; others publish what is in other lanes meanwhile."""


def outbox(alias: str) -> OutboxQuerySet:
    """The outbox in the database ``alias``."""
    rows: Any = Outbox.objects.using(alias)
    assert isinstance(rows, OutboxQuerySet)
    return rows


def holders(alias: str, entries: Sequence[Entry]) -> dict[UUID, UUID]:
    """For each entry that a job already stands for, that job's id."""
    if not entries:
        return {}
    source, parameters = picking.rows(alias, _HOLDER_TYPES, entries)
    found = picking.run(alias, "holders", parameters, called=source)
    standing = {picking.to_uuid(row[0]): picking.to_uuid(row[1]) for row in found if not row[2]}
    standing.update({picking.to_uuid(row[0]): picking.to_uuid(row[1]) for row in found if row[2]})
    return standing


def staged_holders(alias: str, entries: Sequence[Entry]) -> dict[UUID, UUID]:
    """For each entry whose key an earlier, unpublished one visible to us has, that one's id."""
    source, parameters = picking.rows(alias, _HOLDER_TYPES, entries)
    found = picking.run(alias, "staged_holders", parameters, called=source)
    return {picking.to_uuid(row[0]): picking.to_uuid(row[1]) for row in found}


def stage(alias: str, entries: Sequence[Entry], *, look: bool) -> dict[UUID, UUID]:
    """Stage ``entries`` in the open transaction of ``alias``.

    With ``look``, those whose key a live job holds are not staged; for each of them the id of
    that job is returned. ``look`` needs the jobs in the same database.
    """
    rows = outbox(alias)
    standing: dict[UUID, UUID] = {}
    left = list(entries)
    for _ in range(_TRIES):
        staged = rows.stage(left, unless_live=look)
        left = [entry for entry in left if entry["id"] not in staged]
        if not left:
            return standing
        found = holders(alias, left)
        standing.update(found)
        left = [entry for entry in left if entry["id"] not in found]
        if not left:
            return standing
    # The holders come and go faster than we look; publishing decides.
    rows.stage(left, unless_live=False)
    return standing


@dataclass(slots=True)
class Published:
    """What one publish did. ``standing``: for each entry's id the job that stands for it."""

    standing: dict[UUID, UUID] = field(default_factory=dict)
    outcomes: dict[UUID, str] = field(default_factory=dict)
    """For each claimed entry's id what it became."""
    announced: list[Announced] = field(default_factory=list)
    superseded: list[Superseded] = field(default_factory=list)
    longest: dict[str, int] = field(default_factory=dict)
    """For each job name the longest row of runs that were superseded with none done between."""


def insert_jobs(alias: str, entries: Sequence[Entry]) -> dict[UUID, UUID]:
    """``publish``; for each entry's id the id of the job that stands for it."""
    return publish(alias, entries).standing


def publish(alias: str, entries: Sequence[Entry]) -> Published:
    """Make each entry a job, in order, and end what is older in their lanes.

    The two ids of ``standing`` are equal for an entry that became a job, now or at an earlier
    try. Entries of lanes carry their ``lane_token``, and the open transaction holds their
    stripes. Raises ``PublishError`` when a row is refused over and over although no live job
    holds its key.
    """
    done = Published()
    for turn in superseding.in_turns(entries):
        new = _insert(alias, turn, done)
        names = {one.job_id: one.key.name for one in new}
        done.superseded += superseding.supersede(alias, names)
        done.announced += new
    done.longest = superseding.note_heads(alias, done.announced, done.superseded)
    return done


def _insert(alias: str, entries: Sequence[Entry], done: Published) -> list[Announced]:
    """Insert what has no holder; what was inserted into lanes now, not at an earlier try."""
    left, delays = list(entries), {}
    for _ in range(_TRIES):
        done.superseded += superseding.free_keys(alias, left)
        source, parameters = picking.rows(alias, PUBLISH_TYPES, left)
        for id_, delay in picking.run(alias, "publish", parameters, called=source):
            delays[picking.to_uuid(id_)] = delay
        left = [entry for entry in left if entry["id"] not in delays]
        found = holders(alias, left)
        done.standing.update(found)
        left = [entry for entry in left if entry["id"] not in found]
        if not left:
            break
    else:
        raise _refused(left[0])
    done.standing.update((id_, id_) for id_ in delays)
    return [
        Announced(key, entry["id"], entry["lane_token"], delays[entry["id"]])
        for entry in entries
        if entry["id"] in delays and (key := superseding.lane_of(entry))
    ]


def _refused(entry: Entry) -> PublishError:
    return PublishError(
        f"Table 'django_jobs_job' refused job {entry['name']!r} with idempotency key "
        f"{entry['idempotency_key']!r} {_TRIES} times although no live job holds it. Check that "
        "the constraint django_jobs_job_live_key is as the migrations made it: "
        "manage.py migrate django_jobs"
    )


def publish_now(alias: str, entries: Sequence[Entry]) -> Published:
    """Publish entries that were never staged. With lanes, in an open transaction of its own.

    What was staged in their lanes and committed before is displaced.
    """
    keys = [key for entry in entries if (key := superseding.lane_of(entry))]
    if not keys:
        return publish(alias, entries)
    tokens = iter(lock_and_draw(alias, keys))
    rivals = superseding.lock_all_entries(alias, set(keys))
    done = publish(
        alias,
        [{**e, "lane_token": None if e["lane"] is None else next(tokens)} for e in entries],
    )
    winners = {one.key: [(None, one.job_id)] for one in reversed(done.announced)}
    superseding.displace(alias, rivals, winners)
    return done


def publish_claimed(
    outbox_alias: str,
    jobs_alias: str,
    token: UUID,
    lanes: Mapping[int, LaneKey | None],
    *,
    blocked: Collection[int] = (),
) -> Published:
    """Publish what is still ours of a claim: the ``seq`` of its entries, each with its lane.

    Those of ``blocked`` are ready but wait for room in their queue before anyone claims them.

    One transaction where outbox and jobs share a database. Where they do not, the jobs commit
    first, and a repeat after a crash in between finds them by their primary keys.
    """
    rows = outbox(outbox_alias)
    with picking.own_transaction(outbox_alias):
        together = outbox_alias == jobs_alias
        with nullcontext() if together else picking.own_transaction(jobs_alias):
            claimed, rivals, done = _publish_ours(outbox_alias, jobs_alias, token, lanes, blocked)
        marks = {entry["seq"]: _outcome(entry, done.standing[entry["id"]]) for entry in claimed}
        if marks:
            rows.mark(token, marks)
        superseding.displace(outbox_alias, rivals, _winners(claimed, done.announced))
    done.outcomes = {entry["id"]: marks[entry["seq"]][0] for entry in claimed}
    return done


def _publish_ours(
    outbox_alias: str,
    jobs_alias: str,
    token: UUID,
    lanes: Mapping[int, LaneKey | None],
    blocked: Collection[int],
) -> tuple[list[Entry], list[Rival], Published]:
    """Locks first: the lanes' stripes, then entries, then jobs."""
    in_lanes = {seq: key for seq, key in sorted(lanes.items()) if key is not None}
    drawn = lock_and_draw(jobs_alias, in_lanes.values(), patience=PATIENCE)
    tokens = dict(zip(in_lanes, drawn, strict=True))
    # Across databases nothing is displaced: every entry becomes a row, superseded ones too.
    displacing = in_lanes and outbox_alias == jobs_alias
    rivals = superseding.lock_rivals(outbox_alias, lanes) if displacing else []
    claimed: list[Entry] = [
        {**entry, "lane_token": tokens.get(entry["seq"]), "blocked": entry["seq"] in blocked}
        for entry in outbox(outbox_alias).claimed(token, list(lanes))
    ]
    return claimed, rivals, publish(jobs_alias, claimed) if claimed else Published()


def _winners(
    claimed: Sequence[Entry], announced: Sequence[Announced]
) -> dict[LaneKey, list[tuple[int | None, UUID]]]:
    """For each lane what was inserted, in staged order."""
    inserted = {one.job_id: one.key for one in announced}
    winners: dict[LaneKey, list[tuple[int | None, UUID]]] = {}
    for entry in claimed:
        if entry["id"] in inserted:
            winners.setdefault(inserted[entry["id"]], []).append((entry["seq"], entry["id"]))
    return winners


def _outcome(entry: Entry, job_id: UUID) -> tuple[str, UUID]:
    if job_id == entry["id"]:
        return PUBLISHED, job_id
    return (REFUSED if entry["on_conflict"] == "error" else DEDUPED), job_id
