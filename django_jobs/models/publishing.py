"""Publishing: entries become jobs, each key at most once while a job holds it.

The only statements that insert into the job table are called from here, by the relay and by an
enqueue outside a transaction alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django_jobs.errors import PublishError
from django_jobs.models import picking
from django_jobs.models.outbox import (
    DEDUPED,
    ENTRY_TYPES,
    PUBLISHED,
    REFUSED,
    Entry,
    Outbox,
    OutboxQuerySet,
)

_STAGING_ONLY = ("batch", "on_conflict", "bypass")
PUBLISH_TYPES: Mapping[str, str] = {
    **{name: kind for name, kind in ENTRY_TYPES.items() if name not in _STAGING_ONLY},
    "staged_at": "timestamptz",
    "blocked": "bool",
}
_HOLDER_TYPES = {name: ENTRY_TYPES[name] for name in ("id", "name", "tenant", "idempotency_key")}
_TRIES = 3


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


def insert_jobs(alias: str, entries: Sequence[Entry]) -> dict[UUID, UUID]:
    """Make each entry a job; for each entry's id the id of the job that stands for it.

    The two are equal for an entry that became a job, now or at an earlier try. Raises
    ``PublishError`` when a row is refused over and over although no live job holds its key.
    """
    standing: dict[UUID, UUID] = {}
    left = list(entries)
    for _ in range(_TRIES):
        source, parameters = picking.rows(alias, PUBLISH_TYPES, left)
        inserted = picking.run(alias, "publish", parameters, called=source)
        standing.update((id_, id_) for id_ in (picking.to_uuid(row[0]) for row in inserted))
        left = [entry for entry in left if entry["id"] not in standing]
        standing.update(holders(alias, left))
        left = [entry for entry in left if entry["id"] not in standing]
        if not left:
            return standing
    refused = left[0]
    raise PublishError(
        f"Table 'django_jobs_job' refused job {refused['name']!r} with idempotency key "
        f"{refused['idempotency_key']!r} {_TRIES} times although no live job holds it. Check that "
        "the constraint django_jobs_job_live_key is as the migrations made it: "
        "manage.py migrate django_jobs"
    )


def publish_claimed(
    outbox_alias: str,
    jobs_alias: str,
    token: UUID,
    seqs: Iterable[int],
    *,
    blocked: Collection[int] = (),
) -> dict[UUID, str]:
    """Publish what is still ours of a claim; for each entry's id its outcome.

    Those of ``blocked`` are ready but wait for room in their queue before anyone claims them.

    One transaction where outbox and jobs share a database. Where they do not, the jobs commit
    first, and a repeat after a crash in between finds them by their primary keys.
    """
    rows = outbox(outbox_alias)
    with picking.own_transaction(outbox_alias):
        claimed = [
            {**entry, "blocked": entry["seq"] in blocked}
            for entry in rows.claimed(token, list(seqs))
        ]
        if not claimed:
            return {}
        if outbox_alias == jobs_alias:
            standing = insert_jobs(jobs_alias, claimed)
        else:
            with picking.own_transaction(jobs_alias):
                standing = insert_jobs(jobs_alias, claimed)
        outcomes = {entry["seq"]: _outcome(entry, standing[entry["id"]]) for entry in claimed}
        rows.mark(token, outcomes)
    return {entry["id"]: outcomes[entry["seq"]][0] for entry in claimed}


def _outcome(entry: Entry, job_id: UUID) -> tuple[str, UUID]:
    if job_id == entry["id"]:
        return PUBLISHED, job_id
    return (REFUSED if entry["on_conflict"] == "error" else DEDUPED), job_id
