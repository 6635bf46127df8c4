"""The one setting, ``DJANGO_JOBS``: a dict with the fields of ``Settings``, in capitals."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from django_jobs.errors import SettingsError

DAY = 86_400.0
DEFAULT_MAX_READY = 10_000


def _default_retention() -> Mapping[str, float]:
    return {"done": 7 * DAY, "failed": 30 * DAY, "dead": 90 * DAY, "cancelled": 30 * DAY}


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting with its default. Times are seconds, sizes are bytes.

    Raises ``SettingsError`` for a value that cannot work.
    """

    database: str = "default"
    """Alias of the database that holds the jobs."""
    outbox_databases: Sequence[str] = ()
    """Aliases in whose transactions jobs are staged. Empty: only ``database``."""
    listen_database: str | None = None
    """Alias of a direct connection for LISTEN, where ``database`` goes through a pooler."""
    autodiscover: Sequence[str] = ("jobs", "tasks", "backfills")
    """Modules of every installed app that workers import."""
    require_tenant: bool = False
    """Refuse declarations without a tenant."""
    lease: float = 30.0
    """How long a claim holds without renewal. On SQLite at least 120."""
    max_crashes: int = 3
    """Lost workers after which a job is dead."""
    poll_interval: float = 0.25
    """How often an idle worker looks when it cannot LISTEN."""
    idle_poll: float = 2.0
    """How often an idle worker looks when LISTEN works; backs off to 2.5 times this."""
    unknown_delay: float = 30.0
    """How long a job that this release does not know is parked."""
    shutdown_grace: float = 25.0
    """How long running jobs may go on after SIGTERM before they are handed back."""
    stuck_after: float = 30.0
    """How long a body may go on past its timeout before its process is replaced."""
    janitor_interval: float = 60.0
    """How often each process deletes history past its retention."""
    release: str = ""
    """Name of the running release, stored with each job that it enqueues."""
    environment: str = ""
    """Where this runs, such as `"production"`; backfills may be for some places only."""
    max_payload: int = 1_048_576
    """Largest payload of a job that sets no limit of its own."""
    max_result: int = 1_048_576
    """Largest stored result."""
    publish_attempts: int = 5
    """Failures after which an outbox entry is quarantined."""
    retention: Mapping[str, float] = field(default_factory=_default_retention)
    """How long finished jobs are kept, per state."""
    outbox_retention: float = DAY
    """How long published outbox entries are kept."""
    schedule_retention: float = 30 * DAY
    """How long decisions about occurrences of schedules are kept."""
    max_ready: int | Mapping[str, int] = 10_000
    """Ready jobs of a queue above which more wait in the outbox; a dict by queue, `"*"`: others."""
    overflow_alert: float = 300.0
    """How long a queue may overflow before a warning, and between two warnings."""
    lanes_cache: str | None = None
    """Alias in `CACHES` whose server carries lane signals. `None`: stops wait for a heartbeat."""
    lanes_timeout: float = 0.25
    """How long one exchange of lane signals may take."""
    lanes_poll: float = 0.5
    """How often a worker process asks whether its lane jobs were superseded."""
    lanes_prefix: str = "django_jobs"
    """What the names of all lane keys begin with."""
    event_retention: float = 7 * DAY
    """How long an event counts that is emitted without `expires=`."""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _require_positive(name, getattr(self, name))
        for name in _WHOLE:
            if not isinstance(getattr(self, name), int):
                raise _impossible(name, getattr(self, name), "a whole number")
        for name in ("outbox_databases", "autodiscover"):
            if isinstance(getattr(self, name), str):
                raise _impossible(name, getattr(self, name), "a list of names")
        if not isinstance(self.environment, str):
            raise _impossible("environment", self.environment, "a text")
        _require_prefix(self.lanes_prefix)
        unknown = set(self.retention) - set(_default_retention())
        if unknown:
            raise _impossible("retention", sorted(unknown), "only done, failed, dead, cancelled")
        object.__setattr__(self, "retention", {**_default_retention(), **self.retention})
        _check_max_ready(self.max_ready)
        if not self.outbox_databases:
            object.__setattr__(self, "outbox_databases", (self.database,))

    def ready_limit(self, queue: str) -> int:
        """``MAX_READY`` of one queue."""
        if isinstance(self.max_ready, int):
            return self.max_ready
        default: int = self.max_ready.get("*", DEFAULT_MAX_READY)
        return self.max_ready.get(queue, default)

    @property
    def outbox_aliases(self) -> tuple[str, ...]:
        """The aliases that have an outbox: the named ones, and the jobs' own."""
        return tuple(dict.fromkeys((*self.outbox_databases, self.database)))


_WHOLE = ("max_crashes", "max_payload", "max_result", "publish_attempts")
_POSITIVE = (
    *_WHOLE,
    "lease",
    "poll_interval",
    "idle_poll",
    "unknown_delay",
    "stuck_after",
    "janitor_interval",
    "shutdown_grace",
    "outbox_retention",
    "schedule_retention",
    "overflow_alert",
    "lanes_timeout",
    "lanes_poll",
    "event_retention",
)


def _require_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _impossible(name, value, "a number")
    if not math.isfinite(value) or value <= 0:
        raise _impossible(name, value, "a finite number above 0")


def _check_max_ready(value: object) -> None:
    by_queue = value if isinstance(value, Mapping) else {"*": value}
    for queue, limit in by_queue.items():
        number = limit if isinstance(limit, int) and not isinstance(limit, bool) else 0
        if not isinstance(queue, str) or number <= 0:
            raise _impossible(
                "max_ready", value, "a whole number above 0, or a dict of such numbers by queue"
            )


def _require_prefix(value: object) -> None:
    # A brace would be taken for the hash tag of a cluster, which belongs to the lane.
    if not isinstance(value, str) or not re.fullmatch(r"[\w.:-]{1,100}", value, re.ASCII):
        raise _impossible("lanes_prefix", value, "1 to 100 letters, digits and any of _ . : -")


def _impossible(name: str, value: object, expected: str) -> SettingsError:
    return SettingsError(
        f"DJANGO_JOBS[{name.upper()!r}] is {value!r}; expected {expected}. Correct it in settings."
    )


def parse(raw: object) -> Settings:
    """``raw`` (the dict from the project's settings) as ``Settings``; raises ``SettingsError``."""
    known = {f.name.upper(): f.name for f in fields(Settings)}
    if not isinstance(raw, Mapping):
        raise SettingsError(f"DJANGO_JOBS must be a dict, not {type(raw).__name__}.")
    unknown = [key for key in raw if key not in known]
    if unknown:
        raise SettingsError(
            f"DJANGO_JOBS has no setting {unknown[0]!r}. Known: {', '.join(sorted(known))}."
        )
    values: dict[str, Any] = {known[key]: value for key, value in raw.items()}
    return Settings(**values)


_current: Settings | None = None


def current() -> Settings:
    """The project's settings, parsed once and again when a test overrides them."""
    global _current
    if _current is None:
        _current = parse(getattr(django_settings, "DJANGO_JOBS", {}))
    return _current


def fault() -> SettingsError | None:
    """What is wrong with the project's settings, for those who report it instead of raising."""
    try:
        current()
    except SettingsError as error:
        return error
    return None


def use(settings: Settings | None) -> None:
    """Make ``settings`` the current ones, for tests; ``None`` goes back to the project's."""
    global _current
    _current = settings


def _forget(*, setting: str, **_: object) -> None:
    global _current
    if setting == "DJANGO_JOBS":
        _current = None


setting_changed.connect(_forget, dispatch_uid="django_jobs.conf")
