"""What callers, the admin and the commands ask for: enqueue, look up, cancel, retry, schedules.

Each function is the same operation wherever it is called from.
"""

from django_jobs.operations.emitting import aemit, emit
from django_jobs.operations.enqueueing import aenqueue, enqueue, enqueue_many, outbox_aliases
from django_jobs.operations.scheduling import (
    look_ahead,
    pause_schedule,
    resume_schedule,
    trigger_schedule,
)
from django_jobs.operations.standing import Standing, cancel, get, retry

__all__ = [
    "Standing",
    "aemit",
    "aenqueue",
    "cancel",
    "emit",
    "enqueue",
    "enqueue_many",
    "get",
    "look_ahead",
    "outbox_aliases",
    "pause_schedule",
    "resume_schedule",
    "retry",
    "trigger_schedule",
]
