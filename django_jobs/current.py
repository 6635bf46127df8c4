"""The job whose body is running: ambient, so that a job stays a plain function."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

from django_jobs.errors import (
    DeadlinePassed,
    FenceRefused,
    JobTimeout,
    LeaseLost,
    NoCurrentJob,
    StepTimeout,
)
from django_jobs.steps.journal import Journal, StepRows

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


class OwnRows(StepRows, Protocol):
    """The rows of one run. Every write raises ``LeaseLost`` once they are not its own."""

    def store_progress(self, value: Any) -> None:
        """Store a JSON value on the job's row."""

    def fenced(self, using: str | None) -> AbstractContextManager[object]:
        """A transaction that commits only if the run is still its job's."""


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
    job_deadline: float | None = None
    """``time.monotonic()`` at which the job's own ``deadline`` passes, or ``None``."""
    cancelled: Flag = field(default_factory=Flag)
    """Set when the body should end: the job was cancelled or lost, or its time is over."""
    rows: OwnRows | None = None
    journal: Journal | None = None
    """What its steps have decided so far."""
    step_deadlines: list[float] = field(default_factory=list)
    """``time.monotonic()`` at which steps that run now time out."""
    step_interrupted: bool = False
    """The statements of a step that was out of time were cancelled."""

    @property
    def remaining(self) -> float | None:
        """Seconds until the attempt times out (0 when it has), or ``None`` without a timeout."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def out_of_time(self) -> JobTimeout:
        """What ends an attempt whose time is over: its own, or that of the whole job."""
        if self.job_deadline is not None and self.job_deadline <= time.monotonic():
            return DeadlinePassed(f"job {self.name} was not done by its deadline")
        return JobTimeout(f"job {self.name} ran longer than its timeout")

    @property
    def step_is_late(self) -> bool:
        """Whether a step that runs now is out of time."""
        return bool(self.step_deadlines) and min(self.step_deadlines) <= time.monotonic()

    def check(self) -> None:
        """Call this now and then in long loops.

        Raises ``JobTimeout`` when the attempt's time is over (``StepTimeout``: the step's,
        ``DeadlinePassed``: the job's), and
        ``LeaseLost`` (which no ``except Exception`` swallows) when the run must stop otherwise.
        """
        if self.remaining == 0.0:
            raise self.out_of_time()
        if self.step_is_late:
            raise StepTimeout(f"job {self.name}: a step ran longer than its timeout")
        if self.cancelled.is_set():
            raise LeaseLost(f"job {self.name} {self.id} must stop: it was cancelled or lost")

    def progress(self, value: Any) -> None:
        """Store a JSON value that the admin and ``get()`` show. Costs one statement a call.

        Inside ``atomic()`` it is stored with the commit. Raises ``ResultError`` for a value that
        cannot be stored, ``LeaseLost`` for a lost run.
        """
        if self.rows is not None:
            self.rows.store_progress(value)

    def atomic(self, using: str | None = None) -> AbstractContextManager[object]:
        """A transaction that a run which is no longer the job's cannot commit.

        ``using``: the alias; by default the jobs' own database. The last statement before COMMIT
        asks for this run's lease on the job's row, and extends it; a run that was cancelled,
        superseded or taken over is rolled back instead, and ``LeaseLost`` is raised.

        Raises ``FenceRefused`` inside another ``atomic()`` block, which would delay the commit
        past the fence, and on an event loop, where Django has no transactions: there write
        ``await sync_to_async(fn)()``.
        """
        if _on_event_loop():
            raise FenceRefused(
                f"Job {self.name}: Django has no transactions in async code. Move the block into "
                "a function and call it with await sync_to_async(fn)()."
            )
        if self.rows is None:
            raise NoCurrentJob(f"Job {self.name} does not run in a worker; it has no lease.")
        self.check()
        return self.rows.fenced(using)

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


_in_worker_process = False


def enter_worker_process() -> None:
    """From now on a step without a current job is an error: it would not be remembered."""
    global _in_worker_process
    _in_worker_process = True


def current_job_for_steps() -> CurrentJob | None:
    """The job whose steps are called here; ``None``: this is no worker, steps are plain calls.

    Raises ``NoCurrentJob`` in a worker process where no job is current.
    """
    current = _current.get(None)
    if current is None and _in_worker_process:
        raise NoCurrentJob(
            "A step was called in a worker without a current job, so it would not be remembered. "
            "In a thread that the body starts, call current_job().wrap(fn), or use step.parallel."
        )
    return current


class running:  # noqa: N801 - reads as a verb; a generator would take three times as long
    """Make ``job`` the current one for a block."""

    __slots__ = ("_job", "_token")

    def __init__(self, job: CurrentJob) -> None:
        self._job = job

    def __enter__(self) -> None:
        self._token = _current.set(self._job)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
