"""Schedules, for the workers of tests that name this module in AUTODISCOVER."""

from __future__ import annotations

import os
import time
from datetime import datetime

from django_jobs import PER_CALL, current_job, job, schedule
from tests.app.jobs import note

if minutes := os.environ.get("TEST_CLOCK_OFF"):
    _right = time.time
    time.time = lambda: _right() + 60 * float(minutes)


@schedule(every=1, missed="all", max_catch_up=1000, arguments={"occurrence": "{occurrence}"})
@job(idempotency_key=PER_CALL)
def ticking(occurrence: datetime) -> None:
    """Notes which occurrence it was run for."""
    note(f"tick {occurrence.isoformat()}")


@schedule(every=1, overlap="queue_one")
@job(idempotency_key=PER_CALL)
def dragging(seconds: float = 1.5) -> None:
    """Takes longer than its interval."""
    note("drag start")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        current_job().check()
        time.sleep(0.02)
    note("drag end")


def _nobody() -> list[str]:
    raise ZeroDivisionError("no tenants today")


@schedule(every=1, per_tenant=_nobody)
@job(idempotency_key=PER_CALL)
def hopeless() -> None:
    """Has a schedule that fails."""
