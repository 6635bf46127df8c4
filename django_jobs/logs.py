"""Log lines of jobs, written by subscribers to the signals: ids and outcomes, never arguments."""

from __future__ import annotations

import logging
import time
from typing import Any

from django_jobs.models import Run
from django_jobs.outcomes import Buried, Outcome, Parked, Retried, Shed, Succeeded
from django_jobs.signals import job_ended

logger = logging.getLogger("django_jobs.jobs")

SUCCESSES_A_SECOND = 100
"""Successes that are logged at INFO within one second; further ones of that second at DEBUG.

A line takes longer than all else that a worker does for a job. Each success is a row as well;
what failed has its line always.
"""


class Ration:
    """So many a second, counted from the first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._since, self._taken = -1.0, 0

    def take(self) -> int:
        """How many were taken within this second, this one included."""
        now = time.monotonic()
        if now - self._since >= 1.0:
            self._since, self._taken = now, 0
        self._taken += 1
        return self._taken


_successes = Ration(SUCCESSES_A_SECOND)


def _level_of_success() -> int:
    taken = _successes.take()
    if taken == SUCCESSES_A_SECOND + 1:
        logger.info("more than %d successes within a second: the rest at DEBUG", _successes.size)
    return logging.INFO if taken <= SUCCESSES_A_SECOND else logging.DEBUG


def log_end(sender: str, run: Run, outcome: Outcome, seconds: float, **_: Any) -> None:
    """One line for each ended run, but for successes beyond their ration."""
    level = _level_of_success() if isinstance(outcome, Succeeded) else logging.INFO
    if not logger.isEnabledFor(level):
        return
    kind = type(outcome).__name__.lower()
    line = "%s %s %s attempt=%d/%d ms=%d"
    values = [kind, sender, run.id, run.attempt, run.max_attempts, round(seconds * 1000)]
    match outcome:
        case Retried(failure, delay):
            logger.warning(line + " in=%.1fs %s", *values, delay, failure.error_class)
        case Buried(_, reason):
            logger.error(line + " %s", *values, reason)
        case Parked(_, reason) | Shed(reason):
            logger.info(line + " %s", *values, reason)
        case _:
            logger.log(level, line, *values)


job_ended.connect(log_end, dispatch_uid="django_jobs.logs")
