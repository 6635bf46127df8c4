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
    │   ├── EmitRefused             an event's payload or expiry cannot be stored
    │   └── OtherDatabaseOpen       a transaction is open on a database the job is not staged in
    ├── PublishError                a committed entry cannot become a job
    ├── JobNotFound                 no job or entry has this id (for this tenant)
    ├── ScheduleNotFound            no schedule has this name, or this process does not declare it
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
    │   ├── StepError               a step is called in a way that no attempt can mend
    │   │   ├── StepNameRefused     its name is no short, plain text
    │   │   ├── StepDuplicate       two steps of one run have one name
    │   │   ├── StepKindChanged     the stored step of this name is of another kind
    │   │   └── StepRefused         it is called where nothing can be remembered
    │   ├── StepFailed              an earlier attempt stored this step's failure as its end
    │   └── WaitTimeout             what a step waited for did not come in time
    │   ├── BackfillRefused         a gate of the backfill is closed, or its order does not fit
    │   └── BackfillStalled         sweeping again does not bring its count to 0
    ├── RetryAfter                  raise it in a body: retry after so many seconds
    └── JobTimeout                  the attempt ran longer than its timeout
        ├── StepTimeout             one step did
        └── DeadlinePassed          the job, over all its attempts, did (terminal)

    Interrupted (BaseException)     the run must stop here
    ├── Suspended                   a step sleeps or waits; the run goes on later
    ├── VersionUnknown              the run began under code that this release does not understand
    └── LeaseLost                   cancelled, or claimed by another worker
        └── Superseded              newer work of its lane took its place

``Interrupted`` is not an ``Exception``, so that ``except Exception`` in a body does not swallow it.
"""

from django_jobs.errors.asking import (
    AtomicNeedsOneDatabase,
    DeclarationError,
    DuplicateJob,
    EmitRefused,
    EnqueueError,
    JobNotFound,
    JobsError,
    KeyRefused,
    LaneError,
    LaneKeyTaken,
    LaneMovedOn,
    LanesUnavailable,
    MoveRefused,
    NoCurrentJob,
    NotCancellable,
    NotDiscoverable,
    NotRetryable,
    NotYourJob,
    OtherDatabaseOpen,
    PayloadError,
    PublishError,
    ScheduleNotFound,
    SettingsError,
    UnknownValue,
)
from django_jobs.errors.running import (
    BackfillNotFound,
    BackfillRefused,
    BackfillStalled,
    DeadlinePassed,
    FenceRefused,
    Interrupted,
    JobTimeout,
    LeaseLost,
    ResultError,
    RetryAfter,
    StepDuplicate,
    StepError,
    StepFailed,
    StepKindChanged,
    StepNameRefused,
    StepRefused,
    StepTimeout,
    Superseded,
    Suspended,
    Terminal,
    VersionUnknown,
    WaitTimeout,
)

__all__ = [
    "AtomicNeedsOneDatabase",
    "BackfillNotFound",
    "BackfillRefused",
    "BackfillStalled",
    "DeadlinePassed",
    "DeclarationError",
    "DuplicateJob",
    "EmitRefused",
    "EnqueueError",
    "FenceRefused",
    "Interrupted",
    "JobNotFound",
    "JobTimeout",
    "JobsError",
    "KeyRefused",
    "LaneError",
    "LaneKeyTaken",
    "LaneMovedOn",
    "LanesUnavailable",
    "LeaseLost",
    "MoveRefused",
    "NoCurrentJob",
    "NotCancellable",
    "NotDiscoverable",
    "NotRetryable",
    "NotYourJob",
    "OtherDatabaseOpen",
    "PayloadError",
    "PublishError",
    "ResultError",
    "RetryAfter",
    "ScheduleNotFound",
    "SettingsError",
    "StepDuplicate",
    "StepError",
    "StepFailed",
    "StepKindChanged",
    "StepNameRefused",
    "StepRefused",
    "StepTimeout",
    "Superseded",
    "Suspended",
    "Terminal",
    "UnknownValue",
    "VersionUnknown",
    "WaitTimeout",
]

for _name in __all__:  # Rows, logs and tracebacks name them as they are imported.
    globals()[_name].__module__ = __name__
