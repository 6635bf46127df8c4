"""For a project's own tests: run what was enqueued, here and now, with the real code.

``drain()`` works inside ``TestCase`` on the test's own database: the relay, the waker, the claim,
the executor and the settle are the worker's, called from this thread. No worker is needed.
"""

from django_jobs.testing.crashing import assert_crash_safe
from django_jobs.testing.draining import Ran, advance, assert_enqueued, drain, enqueued
from django_jobs.testing.memory import MemoryQueue, memory_queue

__all__ = [
    "MemoryQueue",
    "Ran",
    "advance",
    "assert_crash_safe",
    "assert_enqueued",
    "drain",
    "enqueued",
    "memory_queue",
]
