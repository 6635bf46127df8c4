"""What is remembered of a step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django_jobs.errors import StepNameRefused

MAX_NAME = 200
"""Characters of a step's name."""


class Kind(StrEnum):
    """What a step does. A stored name keeps its kind."""

    RUN = "run"
    SLEEP = "sleep"
    EVENT = "event"
    JOB = "job"
    JOBS = "jobs"
    FIRST = "first"


class Status(StrEnum):
    """Where a step stands.

    ``retrying``: it failed and runs again. ``waiting``: for a time, an event or a job.
    ``answered``: what it waited for is there, and the run has not taken it yet; ``woken``: the run
    has been woken for it. ``closed``: it waited in a race that another branch has won. ``done``,
    ``failed`` and ``timed_out`` are decisions: every replay finds the same.
    """

    RETRYING = "retrying"
    WAITING = "waiting"
    ANSWERED = "answered"
    WOKEN = "woken"
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CLOSED = "closed"


DECIDED = (Status.DONE, Status.FAILED, Status.TIMED_OUT, Status.CLOSED)


@dataclass(slots=True)
class Memo:
    """One row of the step table. ``output`` is JSON text.

    ``wait``: seconds from now until it wakes (negative: it is due); given anew it sets the time.
    ``position`` is the step's place in the order in which the run met its steps, from 1.
    """

    name: str
    kind: Kind
    status: Status
    position: int = 0
    version: str = ""
    output: str | None = None
    attempts: int = 0
    error_class: str = ""
    error: str = ""
    wait: float | None = None
    event: str | None = None
    match: str | None = None
    tenant: str = ""
    event_seq: int | None = None
    child: UUID | None = None

    @property
    def is_due(self) -> bool:
        """Whether the time that it waits for has come."""
        return self.wait is not None and self.wait <= 0


def check_name(name: Any) -> str:
    """``name`` as the key of a step; raises ``StepNameRefused``."""
    plain = isinstance(name, str) and name.isprintable() and name.strip() == name
    if not plain or not 0 < len(name) <= MAX_NAME:
        raise StepNameRefused(
            f"{name!r} cannot name a step. Write a short text, at most {MAX_NAME} characters, the "
            'same on every attempt: step.run("charge", charge, order_id).'
        )
    return str(name)
