"""Steps that do something: each once, its result stored before it is returned."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, NoReturn, TypeVar

from asgiref.sync import sync_to_async

from django_jobs import conf
from django_jobs.current import CurrentJob, current_job_for_steps
from django_jobs.durations import seconds
from django_jobs.errors import Interrupted, StepFailed, StepRefused, StepTimeout
from django_jobs.failures import failure_of
from django_jobs.payloads import Result, decode_value, encode_value
from django_jobs.retries import HOPELESS, Retry, decide
from django_jobs.steps.journal import Journal, running_step
from django_jobs.steps.memo import Kind, Memo, Status, check_name

R = TypeVar("R")


def run(
    name: str,
    fn: Callable[..., R],
    /,
    *args: Any,
    atomic: bool | str = False,
    retry: Retry | None = None,
    timeout: float | timedelta | None = None,
    **kwargs: Any,
) -> R:
    """``fn(*args, **kwargs)``, once: its result is stored, and later attempts get the stored one.

    It is returned as it is stored and read, by the annotation of ``fn``, the first time too.

    - ``atomic``: what ``fn`` writes to the jobs' database and its result are one transaction, so
      that it happens exactly once; ``True`` means ``default``, an alias names another.
    - ``retry``: attempts of this step's own, with the worker free in between. Without it a failure
      is the attempt's, and the job's own ``retry`` decides.
    - ``timeout``: seconds or ``timedelta`` for each try; ``StepTimeout``.

    An error that ends the step is stored, and raised by replays. Outside a worker ``fn`` is just
    called. Raises ``StepError`` and ``ResultError``, which end the job.
    """
    call: Call[R] = Call.of(name, fn, atomic, retry, timeout)
    if (journal := journal_here()) is None:
        with running_step(None, name):
            return call.plain(fn(*args, **kwargs))
    if (memo := journal.take(name, Kind.RUN)) and memo.status is not Status.RETRYING:
        return call.replay(journal, memo)
    begun = call.begin(journal, memo)
    try:
        with call.transaction(journal), _limited(journal.current, call.timeout, name):
            text = call.encode(fn(*args, **kwargs))
            if call.is_atomic:
                journal.store(begun.done(text))
    except Exception as error:
        begun.fail(error)
    if not call.is_atomic:
        journal.store(begun.done(text))
    return call.decode(text)


async def arun(
    name: str,
    fn: Callable[..., Awaitable[R]],
    /,
    *args: Any,
    retry: Retry | None = None,
    timeout: float | timedelta | None = None,
    **kwargs: Any,
) -> R:
    """``run`` for async bodies. There is no ``atomic``: Django has no async transactions."""
    call: Call[R] = Call.of(name, fn, False, retry, timeout)
    journal = journal_here()
    if journal is None:
        with running_step(None, name):
            return call.plain(await fn(*args, **kwargs))
    memo = await in_thread(journal.take, name, Kind.RUN)
    if memo is not None and memo.status is not Status.RETRYING:
        return call.replay(journal, memo)
    begun = await in_thread(call.begin, journal, memo)
    try:
        with running_step(journal.current.id, name):
            value = await _awaited(fn(*args, **kwargs), call.timeout, name)
        text = call.encode(value)
    except Exception as error:
        await in_thread(begun.fail, error)
    await in_thread(journal.store, begun.done(text))
    return call.decode(text)


async def in_thread(work: Callable[..., Any], *args: Any) -> Any:
    """``work`` in the body's own thread, where its database connections are."""
    return await sync_to_async(work)(*args)


def journal_here() -> Journal | None:
    """The journal of the body that runs here; ``None`` outside a worker: steps are plain calls."""
    current = current_job_for_steps()
    if current is None:
        return None
    if current.journal is None:
        raise StepRefused(f"Job {current.name} does not run in a worker; it has no steps.")
    return current.journal


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One call of ``run``, checked: what can be wrong is refused before anything happens."""

    name: str
    result: Result
    atomic: bool | str
    retry: Retry | None
    timeout: float | None

    @classmethod
    def of(cls, name: str, fn: Any, atomic: Any, retry: Any, timeout: Any) -> Call[R]:
        """Raises ``StepError``, or ``DeclarationError`` for a return type that is not storable."""
        check_name(name)
        while hasattr(fn, "func"):  # functools.partial
            fn = fn.func
        if not callable(fn):
            raise StepRefused(f"Step {name!r}: {fn!r} cannot be called. Pass the function itself.")
        if not hasattr(fn, "__qualname__"):
            fn = type(fn).__call__
        length = seconds(timeout)
        if timeout is not None and not length:
            raise StepRefused(f"Step {name!r}: timeout={timeout!r}; write finite seconds above 0.")
        if retry is not None and not isinstance(retry, Retry):
            raise StepRefused(f"Step {name!r}: retry={retry!r}; write Retry(max_attempts=...).")
        return cls(name, Result.of(fn), atomic, retry, length)

    @property
    def is_atomic(self) -> bool:
        """Whether effect and memory are one transaction."""
        return self.atomic is not False

    def encode(self, value: object) -> str:
        """``value`` as it is stored. Raises ``ResultError``."""
        what = f"the result of step {self.name!r}"
        return encode_value(value, conf.current().max_result, what) or "null"

    def decode(self, text: str | None) -> R:
        """A stored value as it is returned, the first time and every time."""
        value: R = decode_value(None if text == "null" else text, self.result.type)
        return value

    def plain(self, value: R) -> R:
        """What a worker would return for ``value``; nothing is stored."""
        return self.decode(self.encode(value))

    def replay(self, journal: Journal, memo: Memo) -> R:
        """What an earlier attempt has decided: returned, or raised."""
        if memo.status is Status.DONE:
            return self.decode(memo.output)
        error = revived(memo)
        journal.final.append(error)
        raise error

    def begin(self, journal: Journal, memo: Memo | None) -> Begun:
        """Make sure that the step may run here and now."""
        if memo is not None and memo.wait is not None and not memo.is_due:
            raise journal.suspend(memo.wait, f"step {self.name!r} is tried again later")
        journal.begin(self.name, atomic=self.atomic)
        return Begun(self, journal, 1 if memo is None else memo.attempts + 1)

    def transaction(self, journal: Journal) -> AbstractContextManager[object]:
        """The transaction of an atomic step, if it is not inside one of the run's own already."""
        in_own = journal.rows.in_own_transaction()
        return journal.current.atomic() if self.is_atomic and not in_own else nullcontext()


@dataclass(slots=True)
class Begun:
    """A step that is running."""

    call: Call[Any]
    journal: Journal
    attempts: int

    def done(self, output: str) -> Memo:
        """Its result, to be stored."""
        return Memo(self.call.name, Kind.RUN, Status.DONE, output=output, attempts=self.attempts)

    def fail(self, error: Exception) -> NoReturn:
        """Store what follows from ``error``, and raise it or suspend."""
        if self.journal.rows.in_own_transaction():
            raise error  # It rolls back with everything else.
        failure, policy = failure_of(error), self.call.retry
        memo = Memo(self.call.name, Kind.RUN, Status.RETRYING, attempts=self.attempts)
        memo.error_class, memo.error = failure.error_class, failure.message
        if policy is None:
            final, delay = isinstance(error, HOPELESS), None
        else:
            decision = decide(policy, error, self.attempts, policy.max_attempts)
            final, delay = not decision.again, decision.delay
        if final:
            memo.status, delay = Status.FAILED, None
            self.journal.final.append(error)
        memo.wait = delay
        self._record(memo, error)
        if delay is not None:
            reason = f"step {self.call.name!r} failed and is tried again"
            raise self.journal.suspend(memo.wait or 0.0, reason) from error
        if not final:
            self.journal.note_failure(memo)
        raise error

    def _record(self, memo: Memo, error: Exception) -> None:
        try:
            self.journal.store(memo)
        except BaseException as unstored:
            # What the step died of says more than that this could not be noted.
            if isinstance(unstored, Interrupted):
                raise error from unstored
            error.add_note(f"This failure of step {memo.name!r} could not be stored: {unstored}")
            raise error from None


def revived(memo: Memo) -> Exception:
    """A stored failure as an exception that the same ``except`` clause catches.

    Of a class that is not loaded, or is none any more, it is a ``StepFailed``.
    """
    path, _, name = memo.error_class.rpartition(".")
    found: Any = sys.modules.get(path or "builtins")
    found = getattr(found, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        error: Exception = found.__new__(found, memo.error)
        error.add_note(f"Stored as the end of step {memo.name!r} by an earlier attempt.")
        return error
    return StepFailed(f"step {memo.name!r} failed: {memo.error_class}: {memo.error}")


@contextmanager
def _limited(current: CurrentJob, timeout: float | None, name: str) -> Iterator[None]:
    """The time that a sync step may take; the thread that watches leases cancels its SQL then."""
    if timeout is None:
        with running_step(current.id, name):
            yield
        return
    deadline = time.monotonic() + timeout
    current.step_deadlines.append(deadline)
    try:
        with running_step(current.id, name):
            yield
    except Exception as error:
        if time.monotonic() < deadline:
            raise
        raise StepTimeout(f"step {name!r} ran longer than {timeout} s") from error
    finally:
        current.step_deadlines.remove(deadline)
        if current.step_interrupted and current.rows is not None:
            current.step_interrupted = False
            current.rows.drop_connections()  # A cancel on its way must not hit what comes next.


async def _awaited(result: Awaitable[R], timeout: float | None, name: str) -> R:
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await result
    except TimeoutError as error:
        if limit.expired():
            raise StepTimeout(f"step {name!r} ran longer than {timeout} s") from error
        raise
