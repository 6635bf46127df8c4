"""Steps: a job continues where it stopped. ``from django_jobs import step``.

>>> def digest(user_id: int) -> None:
...     items = step.run("collect", collect, user_id)
...     step.wait_for_event("approved", match=user_id)
...     step.sleep(3600)
...     step.run("send", send, user_id, items)
"""

from django_jobs.steps.branching import aparallel, parallel
from django_jobs.steps.journal import key
from django_jobs.steps.racing import (
    Event,
    JobEnd,
    JobEnds,
    Timer,
    Winner,
    afirst,
    await_jobs,
    first,
    wait_for_jobs,
)
from django_jobs.steps.running import arun, run
from django_jobs.steps.waiting import asleep, await_event, sleep, wait_for_event

__all__ = [
    "Event",
    "JobEnd",
    "JobEnds",
    "Timer",
    "Winner",
    "afirst",
    "aparallel",
    "arun",
    "asleep",
    "await_event",
    "await_jobs",
    "first",
    "key",
    "parallel",
    "run",
    "sleep",
    "wait_for_event",
    "wait_for_jobs",
]
