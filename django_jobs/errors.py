"""Every exception of the package.

::

    JobsError
    ├── DeclarationError            a @job is declared wrongly; raised when its module loads
    │   └── AtomicNeedsOneDatabase  atomic= names another database than the one that holds the jobs
    ├── SettingsError               DJANGO_JOBS holds an unknown or impossible value
    ├── EnqueueError                a call is refused before anything is written
    │   ├── PayloadError            an argument cannot be stored, or does not fit the signature
    │   ├── KeyRefused              an idempotency key, tenant or queue name is empty or too long
    │   ├── DuplicateJob            on_conflict="error" and a live job holds the key
    │   ├── NotDiscoverable         workers would not import the module of this job
    │   └── OtherDatabaseOpen       a transaction is open on a database the job is not staged in
    ├── PublishError                a committed entry cannot become a job
    ├── JobNotFound                 no job or entry has this id (for this tenant)
    ├── MoveRefused                 the job's state does not allow what was asked
    │   ├── NotCancellable
    │   ├── NotRetryable
    │   │   └── LaneMovedOn         something newer was published in the job's lane
    │   └── NotYourJob              the id stands for a job that another caller enqueued
    ├── UnknownValue                a row holds a value this release does not know
    ├── NoCurrentJob                current_job() outside a job's body
    ├── LaneError                   a call of django_jobs.lanes failed
    │   ├── LanesUnavailable        no server is configured, or it does not answer
    │   └── LaneKeyTaken            something else wrote to the key of a lane
    ├── BackfillNotFound            no backfill, or no pass of it, has this name or id
    ├── ResultError                 a body's return value or progress cannot be stored
    ├── Terminal                    raise it in a body: do not retry this
    │   ├── FenceRefused            current_job().atomic() cannot be opened here
    │   ├── BackfillRefused         a gate of the backfill is closed, or its order does not fit
    │   └── BackfillStalled         sweeping again does not bring its count to 0
    ├── RetryAfter                  raise it in a body: retry after so many seconds
    └── JobTimeout                  the attempt ran longer than its timeout

    Interrupted (BaseException)     the run must stop: it is no longer ours
    └── LeaseLost                   cancelled, or claimed by another worker
        └── Superseded              newer work of its lane took its place

``Interrupted`` is not an ``Exception``, so that ``except Exception`` in a body does not swallow it.
"""

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


class OtherDatabaseOpen(EnqueueError):
    """The job would be published at once although a transaction is open on another database."""


class PublishError(JobsError):
    """A committed outbox entry cannot become a job."""


class JobNotFound(JobsError, LookupError):
    """No job and no outbox entry has this id, or not for this tenant."""


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


class ResultError(JobsError, ValueError):
    """A return value or progress value cannot be stored. Terminal: a retry would not mend it."""


class Terminal(JobsError):
    """Raise this (or a subclass) in a body when trying again cannot help."""


class FenceRefused(Terminal):
    """``current_job().atomic()`` was called where its fence could not be the last statement."""


class BackfillNotFound(JobsError, LookupError):
    """No backfill is declared under this name, or none of its passes fits what was asked."""


class BackfillRefused(Terminal):
    """A backfill may not do this now. ``gate`` is one word that says which rule forbids it.

    ``environment``, ``requires``, ``depends_on``, ``applied``, ``running``, ``state``.
    """

    def __init__(self, gate: str, message: str, job_id: object = None) -> None:
        self.gate, self.job_id = gate, job_id
        super().__init__(message)


class BackfillStalled(Terminal):
    """``count`` is not 0 after a sweep, and sweeping again did not lower it."""


class RetryAfter(JobsError):
    """Raise this in a body to be tried again after ``seconds``. The attempt counts."""

    def __init__(self, seconds: float, message: str = "") -> None:
        self.seconds = seconds
        super().__init__(message or f"asked to be retried after {seconds} s")


class JobTimeout(JobsError, TimeoutError):
    """The attempt ran longer than its ``timeout``."""


class Interrupted(BaseException):
    """The run must stop now; what it does from here on is not stored."""


class LeaseLost(Interrupted):
    """The row no longer carries this run's lease token."""


class Superseded(LeaseLost):
    """Newer work of the job's lane took its place."""
