"""The jobs that are measured."""

import os
import time

from django_jobs import PER_CALL, RetryAfter, current_job, job, step


@job(idempotency_key=PER_CALL)
def noop(number: int = 0) -> None:
    """Does nothing: all of the time is ours."""


@job(idempotency_key="keyed:{number}")
def keyed(number: int) -> None:
    """Does nothing, once for each number: an enqueue looks for the live job of its key."""


@job(lane="{number}")
def in_lane(number: int) -> None:
    """Does nothing, in a lane of its own."""


@job(lane="one")
def watched(number: int) -> None:
    """Says when it began, and when it was told to stop, by the clock that all processes share."""
    with open(os.environ["BENCH_STOPS"], "a") as told:
        told.write(f"start {number} {time.monotonic()}\n")
        told.flush()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if current_job().cancelled.wait(0.5):
                told.write(f"stop {number} {time.monotonic()}\n")
                return


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
