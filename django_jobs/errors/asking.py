"""What callers, operators and settings are refused."""

from __future__ import annotations

from collections.abc import Iterable


class JobsError(Exception):
    """Base of every exception of this package but ``Interrupted``."""


class DeclarationError(JobsError):
    """A job is declared wrongly. The message ends with the edit that mends it."""


class AtomicNeedsOneDatabase(DeclarationError):
    """Exactly once needs the effect and its record in one transaction, so in one database."""

    def __init__(self, what: str, alias: str, jobs: str) -> None:
        self.alias, self.jobs = alias, jobs
        super().__init__(
            f"{what}: atomic= promises exactly once for rows in database {alias!r}, but "
            f"DJANGO_JOBS['DATABASE'] is {jobs!r}, and two databases commit separately. Write "
            f"atomic={jobs!r} if the rows live there; else use current_job().atomic(using="
            f"{alias!r}), which keeps stale runs from committing, at least once."
        )


class SettingsError(JobsError):
    """The setting ``DJANGO_JOBS`` holds an unknown key or an impossible value."""


class EnqueueError(JobsError, ValueError):
    """A call to ``enqueue`` is refused; nothing was written."""


class PayloadError(EnqueueError):
    """An argument does not fit the signature or cannot be stored unchanged."""


class KeyRefused(EnqueueError):
    """An idempotency key, a tenant or a queue name is empty, too long or not plain text."""


class DuplicateJob(EnqueueError):
    """A live job (or an entry that will become one) already holds the key.

    ``job_id`` is its id.
    """

    def __init__(self, name: str, key: str, job_id: object) -> None:
        self.name, self.key, self.job_id = name, key, job_id
        super().__init__(
            f"Job {name!r} with idempotency key {key!r} is already live as {job_id}. "
            'Wait for it, cancel it, or enqueue with on_conflict="dedupe".'
        )


class NotDiscoverable(EnqueueError):
    """The job's module is one that workers do not import, so no worker could run it."""


class EmitRefused(EnqueueError):
    """An event's payload or expiry cannot be stored; nothing was written."""


class OtherDatabaseOpen(EnqueueError):
    """The job would be published at once although a transaction is open on another database."""


class PublishError(JobsError):
    """A committed outbox entry cannot become a job."""


class JobNotFound(JobsError, LookupError):
    """No job and no outbox entry has this id, or not for this tenant."""


class ScheduleNotFound(JobsError, LookupError):
    """No schedule has this name, or this process does not declare it and cannot make its jobs."""


class MoveRefused(JobsError):
    """The state of the job does not allow what was asked; nothing was changed."""


class NotCancellable(MoveRefused):
    """The job is finished already."""


class NotRetryable(MoveRefused):
    """The job is live, still stopping, or its key is held by another live job."""


class LaneMovedOn(NotRetryable):
    """A newer job was published in the lane of this one; ``newer`` is its id, if it is known."""

    def __init__(self, job_id: object, newer: object) -> None:
        self.job_id, self.newer = job_id, newer
        super().__init__(
            f"Job {job_id} cannot run again: its lane moved on to job {newer}, whose data is "
            "newer. Retry that one, or pass as_newest=True to make this the lane's newest."
        )


class NotYourJob(MoveRefused):
    """The id was deduplicated: it stands for a job that another caller enqueued too."""


class UnknownValue(JobsError):
    """A row holds a value that this release does not know (it may come from a newer one)."""

    def __init__(self, table: str, column: str, value: object, known: Iterable[str]) -> None:
        self.table, self.column, self.value, self.known = table, column, value, tuple(known)
        super().__init__(
            f"Table {table!r}, column {column!r} holds {value!r}; this release knows "
            f"{', '.join(self.known)}. Deploy the release that wrote the row, or correct it."
        )


class NoCurrentJob(JobsError, RuntimeError):
    """There is no job on this thread or task."""


class LaneError(JobsError):
    """A call of ``django_jobs.lanes`` failed."""


class LanesUnavailable(LaneError):
    """No server carries lane signals: none is configured, or it does not answer."""


class LaneKeyTaken(LaneError):
    """The key of a lane holds something that no lane wrote. ``key`` is its name."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"The key {key!r} holds something that is no lane's. Delete it, and give lanes a "
            "database or a LANES_PREFIX of their own."
        )
