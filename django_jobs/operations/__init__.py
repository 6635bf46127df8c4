"""What callers, the admin and the commands ask for: enqueue, look up, cancel, retry.

Each function is the same operation wherever it is called from.
"""

from django_jobs.operations.emitting import aemit, emit
from django_jobs.operations.enqueueing import aenqueue, enqueue, enqueue_many, outbox_aliases
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
    "outbox_aliases",
    "retry",
]
