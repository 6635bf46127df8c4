"""One run: decode, call the body, and say how it ended. Nothing is written here.

The outcome is a value, built before anything is stored, so that a failing write is never taken
for a failed attempt.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import OperationalError

from django_jobs import conf, definitions
from django_jobs import connections as sessions
from django_jobs.current import CurrentJob, running
from django_jobs.errors import (
    Interrupted,
    JobTimeout,
    LeaseLost,
    Suspended,
    UnknownValue,
    VersionUnknown,
)
from django_jobs.failures import failure_of, stack_of
from django_jobs.lanes import advice
from django_jobs.lanes.advice import Advice
from django_jobs.leases import Held, claim_of
from django_jobs.models import Job, OwnRows, Run
from django_jobs.operations.yielding import supersede_running
from django_jobs.outcomes import Buried, Lost, Outcome, Parked, Retried, Shed, Succeeded
from django_jobs.payloads import encode_value
from django_jobs.retries import Decision, decide, told
from django_jobs.signals import job_started
from django_jobs.steps.journal import Journal

logger = logging.getLogger("django_jobs.executor")

STUCK = "stuck past deadline"

Definition = definitions.Definition[Any, Any]


def execute(held: Held) -> Outcome:
    """Run a sync body in this thread of a worker; never raises. Leaves its connections tidy."""
    held.thread = threading.get_ident()
    held.interrupt = _canceller(sessions.ready_for_body())
    try:
        return run_body(held)
    finally:
        held.interrupt = None
        if held.timed_out or _told_to_stop(held):
            sessions.close_all()  # A cancel that is still on its way must not hit the next body.
        else:
            sessions.tidy_after_body(held.run.name)


def run_body(held: Held) -> Outcome:
    """Run a sync body here and say how it ended; never raises."""
    definition = definitions.definition(held.run.name)
    if definition is None:
        return _unknown(held.run)
    try:
        current, arguments = _begin(held, definition)
        with running(current):
            held.run.began_at = time.monotonic()
            if definition.atomic is not None:
                return _settled_by_body(held, definition, arguments)
            value = definition.fn(**arguments)
        return _ended(held, definition, value)
    except BaseException as error:
        return _failed(held, definition, error)
    finally:
        held.end()


async def aexecute(held: Held) -> Outcome:
    """Run an async body on a worker's loop; never raises. Its threads are its own."""
    # Threads that the body reaches through sync_to_async must not be those of other bodies:
    # they would share one thread and one connection.
    async with ThreadSensitiveContext():
        try:
            return await arun_body(held)
        finally:
            held.interrupt = None
            await _to_thread(sessions.close_all)


async def arun_body(held: Held) -> Outcome:
    """Run an async body here and say how it ended; never raises."""
    definition = definitions.definition(held.run.name)
    if definition is None:
        return _unknown(held.run)
    loop = asyncio.get_running_loop()
    try:
        current, arguments = await _to_thread(_begin, held, definition)
        held.run.began_at = time.monotonic()
        with running(current):
            body = asyncio.ensure_future(definition.fn(**arguments))

        def cancel() -> None:
            loop.call_soon_threadsafe(body.cancel)

        held.interrupt = cancel
        if _told_to_stop(held):
            cancel()
        return _ended(held, definition, await body)
    except BaseException as error:
        return _failed(held, definition, error)
    finally:
        held.end()


async def _to_thread(fn: Callable[..., Any], *args: Any) -> Any:
    return await sync_to_async(fn)(*args)


def _unknown(run: Run) -> Outcome:
    return Parked(
        conf.current().unknown_delay,
        f"This release has no job named {run.name!r}; it waits for one.",
    )


def _begin(held: Held, definition: Definition) -> tuple[CurrentJob, dict[str, Any]]:
    """Everything between the claim and the body: arguments, the current job, the signal."""
    run = held.run
    if run.lane_token is not None:
        _take_lane(run, definition)
    payload = run.payload if run.payload is not None else Job.objects.all().payload_of(run.id)
    arguments = definition.arguments.decode(payload)
    deadline = None if run.timeout is None else time.monotonic() + run.timeout
    rows, job_deadline = OwnRows(run), _job_deadline(run, definition)
    current = held.current = CurrentJob(
        id=run.id,
        name=run.name,
        attempt=run.attempt,
        max_attempts=run.max_attempts,
        tenant=run.tenant,
        traceparent=run.traceparent,
        deadline=min(filter(None, (deadline, job_deadline)), default=None),
        job_deadline=job_deadline,
        rows=rows,
    )
    current.journal = Journal(current, rows, definition.versions)
    if job_deadline is not None:
        current.check()
    job_started.send_robust(sender=run.name, run=run)
    return current, arguments


def _take_lane(run: Run, definition: Definition) -> None:
    """An early look for something newer: the claim has seen the row, but that was a while ago."""
    if definition.supersede_running == "on_start" and not supersede_running(run):
        raise LeaseLost(f"the lane of job {run.name} {run.id} is busy")  # Handed back, for now.
    claim = claim_of(run)
    if advice.start(claim) is Advice.LOOK:
        if not Job.objects.all().still_held([run]):
            raise LeaseLost(f"job {run.name} {run.id} was superseded before its body began")
        advice.reclaim([claim])


def _job_deadline(run: Run, definition: Definition) -> float | None:
    """``time.monotonic()`` of the job's deadline. Costs a statement where one is declared."""
    if definition.deadline is None:
        return None
    running_for: float = Job.objects.all().running_for(run.id)
    declared: float = definition.deadline
    return time.monotonic() + declared - running_for


def _until_deadline(held: Held, delay: float) -> float:
    """``delay``, but not past the job's deadline: at that the job has to end."""
    deadline = None if held.current is None else held.current.job_deadline
    return delay if deadline is None else max(0.0, min(delay, deadline - time.monotonic()))


def _settled_by_body(held: Held, definition: Definition, arguments: dict[str, Any]) -> Outcome:
    """Run a body in the transaction that also stores its success: both happen, or neither."""
    definitions.require_one_database(definition)
    assert held.current is not None and isinstance(held.current.rows, OwnRows)
    with held.current.rows.fenced(settles=True) as fence:
        value = definition.fn(**arguments)
        fence.result = _result(held, definition, value).result
    # A body may have asked for a rollback; then its success is not stored yet.
    return Succeeded(fence.result, stored=fence.settled)


def _result(held: Held, definition: Definition, value: Any) -> Succeeded:
    if held.timed_out:
        logger.warning("job %s %s ended well after its timeout", held.run.name, held.run.id)
    result = encode_value(value, conf.current().max_result, f"the result of job {definition.name}")
    return Succeeded(result)


def _ended(held: Held, definition: Definition, value: Any) -> Outcome:
    journal = None if held.current is None else held.current.journal
    if journal is not None and journal.suspension is not None:
        raise journal.suspension  # The body has swallowed it.
    return _result(held, definition, value)


def _failed(held: Held, definition: Definition, error: BaseException) -> Outcome:
    run = held.run
    if isinstance(error, Suspended):
        return Parked(_until_deadline(held, error.delay), error.reason)
    if isinstance(error, VersionUnknown | UnknownValue):
        return Parked(conf.current().unknown_delay, str(error))
    if held.timed_out and not isinstance(error, JobTimeout):
        # What surfaced is the statement or task that the deadline cancelled.
        assert held.current is not None
        late = held.current.out_of_time()
        late.__cause__ = error
        error = late
    elif isinstance(error, Interrupted) or (
        # So does the statement or task that was cancelled to make it stop.
        isinstance(error, asyncio.CancelledError | OperationalError) and _told_to_stop(held)
    ):
        return Lost() if held.lost else Shed("stopped")
    decision = decide(definition.retry, error, run.attempt, run.max_attempts)
    if _is_stored_end(held, error):
        decision = Decision(again=False, delay=0.0, reason="terminal")
    failure = failure_of(error)
    if decision.again:
        return Retried(failure, _until_deadline(held, decision.delay))
    reason = told(decision, error, run.attempt, run.max_attempts)
    return Buried(failure, reason, keep=definition.retry.dead_letter)


def give_up(held: Held) -> Outcome:
    """How a run ends whose body does not: by its policy's answer to a timeout."""
    definition = definitions.definition(held.run.name)
    assert definition is not None  # Its body runs.
    error = JobTimeout(f"{STUCK}: it went on after its timeout of {held.run.timeout} s")
    outcome = _failed(held, definition, error)
    where = stack_of(held.thread)
    match outcome:
        case Retried(failure, delay):
            return Retried(replace(failure, traceback=where), delay)
        case Buried(failure, _, keep):
            return Buried(replace(failure, traceback=where), STUCK, keep)
    return outcome


def _is_stored_end(held: Held, error: BaseException) -> bool:
    """Whether a step has stored this error as its end: the next attempt would meet it again."""
    journal = None if held.current is None else held.current.journal
    return journal is not None and any(one is error for one in journal.final)


def _told_to_stop(held: Held) -> bool:
    return held.current is not None and held.current.cancelled.is_set()


def _canceller(open_connections: list[Any]) -> Callable[[], None]:
    """Cancels the statements that run on these connections now. Called from another thread."""

    def cancel() -> None:
        for connection in open_connections:
            raw = connection.connection
            if raw is None or raw.closed:
                continue
            threading.Thread(target=_cancel_quietly, args=(raw,), daemon=True).start()

    return cancel


def _cancel_quietly(raw: Any) -> None:
    try:
        raw.cancel_safe(timeout=5.0)
    except Exception as error:
        logger.debug("cancelling a statement: %s", error)
