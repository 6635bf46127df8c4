"""What stands behind an id that ``enqueue`` returned, and the orders an operator may give it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django_jobs import conf
from django_jobs.errors import JobNotFound, NotCancellable, NotYourJob
from django_jobs.models import Job, Outbox, picking, publishing
from django_jobs.models.outbox import CANCELLED, DEDUPED, PUBLISHED, QUARANTINED, REFUSED
from django_jobs.models.waking import Hint, notify
from django_jobs.operations.announcing import announce
from django_jobs.operations.enqueueing import outbox_aliases
from django_jobs.states import State

STAGED = "staged"


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands behind an id.

    ``state`` is the job's state, ``"staged"`` until there is a job, or the outcome of an entry
    that never became one (``"cancelled"``, ``"quarantined"``, ``"refused_duplicate"``).
    ``job_id`` is the job that stands for the id, another one's when it was deduplicated.
    ``superseded_by`` is the newer job of its lane that ended it.
    """

    id: UUID
    state: str
    job_id: UUID | None
    name: str
    queue: str
    tenant: str
    deduped: bool = False
    superseded_by: UUID | None = None
    attempt: int = 0
    result: Any = None
    progress: Any = None
    reason: str = ""
    cancelled_by: str = ""
    retried_by: str = ""
    retry_reason: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


def get(job_id: UUID, *, tenant: str | None = None) -> Standing:
    """What stands behind ``job_id``; only if it belongs to ``tenant``, when one is given.

    Raises ``JobNotFound``, and ``UnknownValue`` for a state that a newer release wrote.
    """
    job = _job(job_id)
    entry = None if job is not None else _entry(job_id)
    if entry is not None and entry.outcome in (PUBLISHED, DEDUPED) and entry.job_id is not None:
        job = _job(entry.job_id)  # Published between the two looks, or another caller's.
    owner = job or entry
    if owner is None or (tenant is not None and owner.tenant != tenant):
        raise _not_found(job_id, tenant)
    if job is None:
        assert entry is not None
        return _standing_of_entry(entry)
    return Standing(
        id=job_id,
        state=job.known_state.value,
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        deduped=job.id != job_id,
        superseded_by=job.superseded_by,
        attempt=job.attempt,
        result=job.result,
        progress=job.progress,
        reason=job.reason,
        cancelled_by=job.cancelled_by,
        retried_by=job.retried_by,
        retry_reason=job.retry_reason,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
    )


def _standing_of_entry(entry: Outbox) -> Standing:
    return Standing(
        id=entry.id,
        state=entry.outcome or STAGED,
        job_id=entry.job_id,
        name=entry.name,
        queue=entry.queue,
        tenant=entry.tenant,
        deduped=entry.outcome in (DEDUPED, REFUSED),
        reason=entry.last_error,
        cancelled_by=entry.cancelled_by,
        retried_by=entry.retried_by,
        retry_reason=entry.retry_reason,
        created_at=entry.staged_at,
    )


def _job(job_id: UUID) -> Job | None:
    job: Job | None = Job.objects.filter(id=job_id).first()
    return job


def _entry(entry_id: UUID) -> Outbox | None:
    for alias in outbox_aliases():
        entry = publishing.outbox(alias).filter(id=entry_id).first()
        if entry is not None:
            return entry
    return None


def _alias_of(entry: Outbox) -> str:
    return entry._state.db or conf.current().database


def _own_entry(entry_id: UUID, tenant: str | None) -> Outbox | None:
    """``_entry``; a stranger's is said to be missing, as one that does not exist."""
    entry = _entry(entry_id)
    if entry is not None and tenant is not None and entry.tenant != tenant:
        raise _not_found(entry_id, tenant)
    return entry


def _not_found(job_id: UUID, tenant: str | None) -> JobNotFound:
    of = "" if tenant is None else f" of tenant {tenant!r}"
    return JobNotFound(f"There is no job {job_id}{of}; it may have been pruned.")


def cancel(
    job_id: UUID, *, tenant: str | None = None, by: str = "", reason: str = "", follow: bool = False
) -> str:
    """Stop a job for good; what it was: ``"staged"`` or a state. A running body is told to stop.

    ``by`` and ``reason`` are stored. An id that was deduplicated is refused (``NotYourJob``: the
    other caller still wants the job) unless ``follow``. Raises ``JobNotFound`` (also when the
    job is not ``tenant``'s) and ``NotCancellable``.
    """
    # An entry may become a job between two looks; then the second round finds the job.
    for _ in range(2):
        entry = _own_entry(job_id, tenant)
        if entry is None or entry.outcome not in (None, QUARANTINED):
            return _cancel_job(job_id, entry, tenant, by, reason, follow)
        rows = publishing.outbox(_alias_of(entry))
        if rows.cancel(job_id, tenant=tenant, by=by, reason=reason):
            # A relay may have died after its jobs and before its marks (two databases).
            published = rows.db != conf.current().database and _job(job_id) is not None
            return _cancel_job(job_id, None, tenant, by, reason, follow) if published else STAGED
    return _cancel_job(job_id, None, tenant, by, reason, follow)


def _cancel_job(
    job_id: UUID, entry: Outbox | None, tenant: str | None, by: str, reason: str, follow: bool
) -> str:
    target = job_id
    if entry is not None and entry.outcome == CANCELLED:
        raise NotCancellable(f"Job {job_id} is cancelled already.")
    if entry is not None and entry.job_id is not None and entry.job_id != job_id:
        if not follow:
            raise NotYourJob(
                f"{job_id} was deduplicated onto job {entry.job_id}, which another caller "
                "enqueued too. Cancel that id, or pass follow=True."
            )
        target = entry.job_id
    was: State = picking.retrying(
        lambda: Job.objects.all().cancel(target, tenant=tenant, by=by, reason=reason)
    )
    if was is State.RUNNING:
        notify(conf.current().database, Hint.STOP)
    return was.value


def retry(
    job_id: UUID,
    *,
    tenant: str | None = None,
    force: bool = False,
    as_newest: bool = False,
    from_step: str | None = None,
    by: str = "",
    reason: str = "",
) -> None:
    """Run a dead or failed job again, with a full new set of attempts and its history kept.

    Its completed steps are not run again, but for ``from_step`` and those after it. ``by`` and
    ``reason`` are stored. ``force`` takes cancelled and done jobs too. A job of a lane
    must be the lane's newest, or is made that ``as_newest``; what is older in it is superseded. A
    quarantined entry is given back to the relay. Raises ``JobNotFound``, ``NotRetryable``,
    ``LaneMovedOn``, and ``NotYourJob`` for a deduplicated id.
    """
    entry = _own_entry(job_id, tenant)
    if entry is not None and entry.job_id not in (None, job_id):
        raise NotYourJob(
            f"{job_id} was deduplicated onto job {entry.job_id}, which another caller enqueued "
            "too. Retry that id."
        )
    if entry is not None and entry.outcome == QUARANTINED:
        alias = _alias_of(entry)
        if publishing.outbox(alias).unquarantine([job_id], by=by, reason=reason):
            notify(alias, Hint.STAGED)
            return
    published = picking.retrying(
        lambda: Job.objects.all().requeue(
            job_id,
            tenant=tenant,
            force=force,
            as_newest=as_newest,
            from_step=from_step,
            by=by,
            reason=reason,
        )
    )
    notify(conf.current().database, Hint.READY)
    announce(conf.current().database, published)
