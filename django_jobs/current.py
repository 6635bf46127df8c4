"""The job whose body is running: ambient, so that a job stays a plain function."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from django_jobs.errors import JobTimeout, LeaseLost, NoCurrentJob

P = ParamSpec("P")
R = TypeVar("R")


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
    cancelled: threading.Event = field(default_factory=threading.Event)
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

        def in_context(*args: P.args, **kwargs: P.kwargs) -> R:
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


@contextmanager
def running(job: CurrentJob) -> Iterator[None]:
    """Make ``job`` the current one for a block."""
    token = _current.set(job)
    try:
        yield
    finally:
        _current.reset(token)
