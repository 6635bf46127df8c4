"""Steps that wait: for a time or for an event. The worker is free meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar, overload

from django_jobs import conf
from django_jobs.durations import LONGEST, seconds
from django_jobs.errors import NoCurrentJob, StepRefused, WaitTimeout
from django_jobs.payloads import decode_value, encode_value
from django_jobs.steps.journal import Journal
from django_jobs.steps.memo import Kind, Memo, Status
from django_jobs.steps.running import in_thread, journal_here

T = TypeVar("T")
D = TypeVar("D")

Duration = float | timedelta


class Unset:
    """The default of arguments for which ``None`` is a value."""


UNSET = Unset()


@overload
def sleep(duration: Duration, /) -> None: ...
@overload
def sleep(name: str, duration: Duration, /) -> None: ...


def sleep(first: str | Duration, duration: Duration | None = None, /) -> None:
    """Go on after ``duration`` (seconds or ``timedelta``), by the database's clock.

    ``sleep("pause", 60)`` or ``sleep(60)``, which is numbered when it comes again. The wake time
    is stored; the worker is free, the attempt is given back, and deploys do not matter. Outside
    a worker it returns at once. Raises ``StepError``.
    """
    journal = journal_here()
    if duration is None:
        assert not isinstance(first, str), 'write step.sleep("name", seconds)'
        length = length_of(first, "step.sleep")
        name = f"sleep {length:g} s"
        if journal is not None:
            name = journal.numbered(name)
    else:
        name, length = str(first), length_of(duration, f"step.sleep({first!r})")
    if journal is None:
        return
    memo = journal.take(name, Kind.SLEEP)
    if memo is None:
        journal.begin(name)
        status = Status.WAITING if length > 0 else Status.DONE
        memo = Memo(name, Kind.SLEEP, status, wait=length)
        journal.store(memo)
    if memo.status is not Status.WAITING:
        return
    if not memo.is_due:
        raise journal.suspend(memo.wait or 0.0, f"sleeps: step {name!r}")
    journal.begin(name)
    journal.store(Memo(name, Kind.SLEEP, Status.DONE))


@overload
def wait_for_event(
    name: str,
    event: str | None = None,
    /,
    *,
    match: object = None,
    timeout: Duration | None = None,
    type: type[T],
) -> T: ...
@overload
def wait_for_event(
    name: str,
    event: str | None = None,
    /,
    *,
    match: object = None,
    timeout: Duration | None = None,
    default: D,
    type: type[T],
) -> T | D: ...
@overload
def wait_for_event(
    name: str,
    event: str | None = None,
    /,
    *,
    match: object = None,
    timeout: Duration | None = None,
    default: Any = UNSET,
) -> Any: ...


def wait_for_event(
    name: str,
    event: str | None = None,
    /,
    *,
    match: object = None,
    timeout: Duration | None = None,
    default: Any = UNSET,
    type: Any = Any,
) -> Any:
    """The payload of the earliest ``event`` that was emitted since the job was enqueued.

    ``event`` is ``name`` unless given. Only events of the job's tenant count, with ``match`` only
    those that were emitted with an equal one; an event is taken by at most one wait of a run.

    - ``timeout``: after it ``default`` is returned, or, without one, ``WaitTimeout`` ends the
      job. Which way it went is stored: an event that comes later changes nothing.
    - ``type``: what the payload is read as.
    """
    wanted = EventWait.of(name, event, match, timeout)
    journal = journal_here()
    if journal is None:
        raise NoCurrentJob(
            f"step.wait_for_event({name!r}) has no event to wait for outside a worker. In tests "
            "run the job with django_jobs.testing.drain() and emit() the event."
        )
    memo = wanted.poll(journal, journal.take(name, Kind.EVENT))
    if memo.status is Status.DONE:
        return read(memo.output, type)
    if memo.status is Status.TIMED_OUT:
        return _after_timeout(memo, default)
    if memo.is_due:
        memo = wanted.timed_out(journal, default)
        return _after_timeout(memo, default)
    wait = LONGEST if memo.wait is None else memo.wait
    raise journal.suspend(wait, f"waits for event {wanted.event!r}: step {name!r}")


async def asleep(first: Any, duration: Duration | None = None, /) -> None:
    """``sleep`` for async bodies."""
    await in_thread(sleep, first, duration)


async def await_event(
    name: str,
    event: str | None = None,
    /,
    *,
    match: object = None,
    timeout: Duration | None = None,
    default: Any = UNSET,
    type: Any = Any,
) -> Any:
    """``wait_for_event`` for async bodies."""

    def wait() -> Any:
        return wait_for_event(name, event, match=match, timeout=timeout, default=default, type=type)

    return await in_thread(wait)


class EventWait:
    """One wait for an event, checked. ``match`` is text, ``timeout`` seconds."""

    def __init__(self, name: str, event: str, match: str | None, timeout: float | None) -> None:
        self.name, self.event, self.match, self.timeout = name, event, match, timeout

    @classmethod
    def of(cls, name: str, event: str | None, match: object, timeout: Duration | None) -> EventWait:
        """Raises ``StepRefused`` for values that cannot work."""
        what = f"step {name!r}"
        length = None if timeout is None else length_of(timeout, f"{what}: timeout")
        return cls(name, name if event is None else event, match_of(match, what), length)

    def poll(self, journal: Journal, memo: Memo | None) -> Memo:
        """Where the wait stands now: begun if it is new, answered if the event is there."""
        if memo is None:
            journal.begin(self.name)
            memo = self._memo(journal, Status.WAITING)
            memo.wait = self.timeout
            journal.store(memo)
        if memo.status in (Status.ANSWERED, Status.WOKEN):
            memo = self._taken(journal, memo.event_seq, memo.output)
        elif memo.status is Status.WAITING:
            # After the wait is stored: an event that commits later finds it.
            found = journal.rows.find_event(
                self.event, self.match, journal.current.tenant, journal.taken_events()
            )
            memo = memo if found is None else self._taken(journal, *found)
        return memo

    def timed_out(self, journal: Journal, default: Any) -> Memo:
        """Store that the time is over, and what is returned then."""
        memo = self._memo(journal, Status.TIMED_OUT)
        if not isinstance(default, Unset):
            memo.output = text_of(default, f"the default of step {self.name!r}")
        journal.begin(self.name)
        journal.store(memo)
        return memo

    def _taken(self, journal: Journal, seq: int | None, payload: str | None) -> Memo:
        memo = self._memo(journal, Status.DONE)
        memo.event_seq, memo.output = seq, payload
        journal.begin(self.name)
        journal.store(memo)
        return memo

    def _memo(self, journal: Journal, status: Status) -> Memo:
        memo = Memo(self.name, Kind.EVENT, status, event=self.event, match=self.match)
        memo.tenant = journal.current.tenant
        return memo


def _after_timeout(memo: Memo, default: Any) -> Any:
    if isinstance(default, Unset):
        raise WaitTimeout(f"step {memo.name!r}: event {memo.event!r} did not come in time")
    return read(memo.output, Any)


def read(text: str | None, type: Any) -> Any:
    """Stored JSON as a value of ``type``."""
    return None if text in (None, "null") else decode_value(text, type)


def text_of(value: object, what: str) -> str:
    """A value as JSON text; raises ``ResultError``."""
    return encode_value(value, conf.current().max_result, what) or "null"


def length_of(duration: Any, what: str) -> float:
    """``duration`` in seconds; raises ``StepRefused``."""
    length = seconds(duration)
    if length is None or length > LONGEST:
        raise StepRefused(
            f"{what}: {duration!r} is no number of seconds (or timedelta) from 0 to {LONGEST:,.0f}."
        )
    return length


def match_of(match: object, what: str) -> str | None:
    """What an event must carry, as text; raises ``StepRefused``."""
    if match is None:
        return None
    text = str(match)
    if not 0 < len(text) <= MAX_MATCH or not text.isprintable():
        raise StepRefused(f"{what}: match={match!r} must be a plain text of 1 to {MAX_MATCH}.")
    return text


MAX_MATCH = 512
"""Characters of what an event is matched by."""
