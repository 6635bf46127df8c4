"""The jobs that are measured."""

import time

from django_jobs import PER_CALL, job


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
