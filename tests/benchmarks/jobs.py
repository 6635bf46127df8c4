"""The jobs that are measured."""

import time

from django_jobs import PER_CALL, RetryAfter, current_job, job, step


@job(idempotency_key=PER_CALL)
def noop(number: int = 0) -> None:
    """Does nothing: all of the time is ours."""


@job(idempotency_key="keyed:{number}")
def keyed(number: int) -> None:
    """Does nothing, once for each number: an enqueue looks for the live job of its key."""


@job(idempotency_key=PER_CALL)
def started() -> float:
    """When this body began, by the clock that all processes of a machine share."""
    return time.monotonic()


@job(idempotency_key=PER_CALL)
def stepped(count: int, atomic: bool, again: bool) -> float:
    """So many steps that do nothing; seconds that they took, on a replay when it is asked for."""
    began = time.perf_counter()
    for number in range(count):
        step.run(f"step {number}", int, number, atomic=atomic)
    took = time.perf_counter() - began
    if again and current_job().attempt == 1:
        raise RetryAfter(0)
    return took


@job(idempotency_key=PER_CALL)
def awaits(number: int) -> float:
    """When it went on after its event, by the clock that all processes share."""
    step.wait_for_event("go", match=number)
    return time.monotonic()


@job(idempotency_key=PER_CALL)
def naps(seconds: float) -> None:
    """One sleep, and nothing else."""
    step.sleep("nap", seconds)
