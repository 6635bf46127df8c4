"""The memory of one attempt: what earlier attempts have decided, and what this one has met."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from django_jobs.errors import (
    StepDuplicate,
    StepKindChanged,
    StepRefused,
    Suspended,
    VersionUnknown,
)
from django_jobs.steps.memo import DECIDED, Kind, Memo, Status, check_name

if TYPE_CHECKING:
    from django_jobs.current import CurrentJob


_running: ContextVar[str] = ContextVar("django_jobs_step")


def key() -> str:
    """A key for what the running step does elsewhere: the same on every attempt of the step.

    Hand it to the mail or payment service as its idempotency key. It is the job's id and the
    step's name; outside a worker the name alone. Raises ``StepRefused`` outside a step.
    """
    name = _running.get("")
    if not name:
        raise StepRefused("step.key() belongs to a step. Call it in the function of a step.run.")
    return name


@contextmanager
def running_step(job: object, name: str) -> Iterator[None]:
    """Make a step the running one for a block."""
    token = _running.set(f"{job}/{name}" if job is not None else name)
    try:
        yield
    finally:
        _running.reset(token)


class StepRows(Protocol):
    """The rows behind a journal. Every write raises ``LeaseLost`` for a run that lost its job."""

    def require_place(self, what: str, atomic: bool | str) -> None:
        """Raises ``StepRefused`` or ``AtomicNeedsOneDatabase`` where nothing can be remembered."""

    def in_own_transaction(self) -> bool:
        """Whether a fenced transaction of the run is open on this thread."""

    def drop_connections(self) -> None:
        """Close this thread's connections that are in no transaction."""

    def load_steps(self) -> list[Memo]:
        """Every step of the run, in one statement."""

    def store_steps(self, memos: Sequence[Memo]) -> dict[str, float | None]:
        """Insert or update; for each name the seconds until it wakes."""

    def find_event(
        self, event: str, match: str | None, tenant: str, taken: Iterable[int]
    ) -> tuple[int, str] | None:
        """The earliest event since the job was enqueued: its number and payload."""

    def outcomes_of(self, ids: Sequence[UUID]) -> dict[UUID, tuple[UUID | None, str | None]]:
        """For each id the job that stands for it, and JSON of its outcome once it has ended."""


class Journal:
    """The steps of one run, as one attempt meets them. Safe for the body's threads."""

    def __init__(
        self, current: CurrentJob, rows: StepRows, versions: Sequence[str] = ("",)
    ) -> None:
        self.current, self.rows, self._versions = current, rows, tuple(versions)
        self.suspension: Suspended | None = None
        """How the attempt has to end, also when the body swallows it."""
        self.final: list[BaseException] = []
        """Errors that are stored as their steps' ends: another attempt would meet them again."""
        self._memos: dict[str, Memo] | None = None
        self._met: set[str] = set()
        self._counts: dict[str, int] = {}
        self._caught: dict[str, Memo] = {}
        self._parallel = self._last_position = 0
        self._owner = threading.current_thread()
        self._lock = threading.RLock()

    def take(self, name: str, kind: Kind) -> Memo | None:
        """What is stored of this step. Raises for a name that is met twice or was another kind."""
        check_name(name)
        with self._lock:
            if self.suspension is not None and not self._parallel:
                raise self.suspension
            memo = self._loaded().get(name)
            if name in self._met:
                raise StepDuplicate(self.current.name, name)
            if memo is not None and memo.kind is not kind:
                raise StepKindChanged(self.current.name, name, memo.kind.value, kind.value)
            self._met.add(name)
            return memo

    def peek(self, name: str) -> Memo | None:
        """What is stored under ``name``, without meeting it."""
        with self._lock:
            return self._loaded().get(name)

    def _loaded(self) -> dict[str, Memo]:
        # Under the lock: a second step that starts meanwhile must not find an empty memory.
        if self._memos is None:
            memos = {memo.name: memo for memo in self.rows.load_steps()}
            began = {memo.version for memo in memos.values()} - set(self._versions)
            if began:
                raise VersionUnknown(self.current.name, sorted(began), self._versions)
            self._memos = memos
            self._last_position = max((memo.position for memo in memos.values()), default=0)
        return self._memos

    def numbered(self, name: str) -> str:
        """``name`` for the first time, then ``name#2``, ``name#3``."""
        with self._lock:
            if self._parallel and threading.current_thread() is not self._owner:
                raise StepRefused(
                    f"Job {self.current.name}: a sleep in a branch on a thread of its own needs a "
                    'name, since branches take turns: step.sleep("pause", 60).'
                )
            count = self._counts[name] = self._counts.get(name, 0) + 1
            return name if count == 1 else f"{name}#{count}"

    def begin(self, name: str, *, atomic: bool | str = False) -> None:
        """A step is about to do or store something new. Raises where it must not."""
        self.current.check()
        self.rows.require_place(f"Job {self.current.name}, step {name!r}", atomic)
        with self._lock:
            if self._caught and not self._parallel:
                # The body went on after these failures, so what it does now follows from them.
                caught = [_as_failed(memo) for memo in self._caught.values()]
                self.store(*caught)
                self._caught.clear()

    def store(self, *memos: Memo) -> float | None:
        """Store before anything follows from it; the seconds until the first of them wakes."""
        with self._lock:
            known = self._loaded()
            for memo in memos:
                if not memo.position:
                    memo.position = self._seat(known.get(memo.name))
                memo.version = memo.version or self._version_of(known)
                known.setdefault(memo.name, memo)
            waits = self.rows.store_steps(memos)
            for memo in memos:
                memo.wait = waits[memo.name]
                known[memo.name] = memo
            return memos[0].wait

    def _seat(self, earlier: Memo | None) -> int:
        """The place of a step in the run: that of its first time, else the next free one."""
        if earlier is not None:
            return earlier.position
        self._last_position += 1
        return self._last_position

    def _version_of(self, known: dict[str, Memo]) -> str:
        """That of the code that the run began under, which this release understands."""
        return next((memo.version for memo in known.values()), self._versions[0])

    def suspend(self, delay: float, reason: str) -> Suspended:
        """The exception that ends this attempt until ``delay`` seconds from now."""
        suspension = Suspended(max(0.0, delay), reason)
        if not self._parallel:
            self.suspension = suspension
        return suspension

    def note_failure(self, memo: Memo) -> None:
        """A step has failed and may run again; if the body goes on, that was its end."""
        with self._lock:
            self._caught[memo.name] = memo

    def taken_events(self) -> list[int]:
        """Numbers of the events that this run's waits have taken."""
        with self._lock:
            memos = self._loaded().values()
            return [m.event_seq for m in memos if m.event_seq is not None and m.status in DECIDED]

    def enter_parallel(self) -> None:
        """Branches follow: none of them follows from another's failure or suspension."""
        with self._lock:
            self._owner = threading.current_thread()
            self._parallel += 1

    def leave_parallel(self) -> None:
        """The branches have settled."""
        with self._lock:
            self._parallel -= 1


def _as_failed(memo: Memo) -> Memo:
    memo.status = Status.FAILED
    return memo
