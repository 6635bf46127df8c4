"""The job whose body is running: ambient, so that a job stays a plain function."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from django_jobs.errors import JobTimeout, LeaseLost, NoCurrentJob

P = ParamSpec("P")
R = TypeVar("R")


class Flag:
    """Set when a body should end. It is ``threading.Event`` but nearly free to make.

    One is made for each run; an event would be the dearest thing in a no-op job.
    """

    __slots__ = ("_event", "_set")

    _guard = threading.Lock()

    def __init__(self) -> None:
        self._set = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """Whether the body should end."""
        return self._set

    def set(self) -> None:
        """Ask the body to end, and wake whoever waits."""
        with self._guard:
            self._set = True
            if self._event is not None:
                self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds; whether the body should end."""
        with self._guard:
            if self._event is None:
                self._event = threading.Event()
            if self._set:
                self._event.set()
            event = self._event
        return event.wait(timeout)


@dataclass(slots=True, eq=False)
class CurrentJob:
    """What a body may know and do about its own run."""

    id: UUID
    name: str
    attempt: int
    max_attempts: int
    tenant: str
    traceparent: str = ""
    deadline: float | None = None
    """``time.monotonic()`` at which the attempt times out, or ``None``."""
    cancelled: Flag = field(default_factory=Flag)
    """Set when the body should end: the job was cancelled or lost, or its time is over."""
    store_progress: Callable[[Any], None] | None = None

    @property
    def remaining(self) -> float | None:
        """Seconds until the attempt times out (0 when it has), or ``None`` without a timeout."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Call this now and then in long loops.

        Raises ``JobTimeout`` when the attempt's time is over, and ``LeaseLost`` (which no
        ``except Exception`` swallows) when the run must stop for any other reason.
        """
        if self.remaining == 0.0:
            raise JobTimeout(f"job {self.name} ran longer than its timeout")
        if self.cancelled.is_set():
            raise LeaseLost(f"job {self.name} {self.id} must stop: it was cancelled or lost")

    def progress(self, value: Any) -> None:
        """Store a JSON value that the admin and ``get()`` show. Costs one statement a call.

        Raises ``ResultError`` for a value that cannot be stored, ``LeaseLost`` for a lost run.
        """
        if self.store_progress is not None:
            self.store_progress(value)

    def wrap(self, fn: Callable[P, R]) -> Callable[P, R]:
        """``fn`` for a thread that the body starts: there ``current_job()`` is this job too."""
        context = contextvars.copy_context()
        context.run(_current.set, self)

        def in_context(*args: P.args, **kwargs: P.kwargs) -> R:
            # Two threads cannot be in one context at a time, hence a copy for each call.
            return context.copy().run(fn, *args, **kwargs)

        return in_context


_current: contextvars.ContextVar[CurrentJob] = contextvars.ContextVar("django_jobs_current")


def current_job() -> CurrentJob:
    """The job whose body is running here. Raises ``NoCurrentJob`` anywhere else."""
    try:
        return _current.get()
    except LookupError:
        raise NoCurrentJob(
            "There is no current job here. Call current_job() in a job's body; for a thread that "
            "the body starts, hand it current_job().wrap(fn)."
        ) from None


def current_job_or_none() -> CurrentJob | None:
    """The job whose body is running here, if any."""
    return _current.get(None)


class running:  # noqa: N801 - reads as a verb; a generator would take three times as long
    """Make ``job`` the current one for a block."""

    __slots__ = ("_job", "_token")

    def __init__(self, job: CurrentJob) -> None:
        self._job = job

    def __enter__(self) -> None:
        self._token = _current.set(self._job)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
