"""Log lines of jobs, written by subscribers to the signals: ids and outcomes, never arguments."""

from __future__ import annotations

import logging
from typing import Any

from django_jobs.models import Run
from django_jobs.outcomes import Buried, Outcome, Parked, Retried, Shed
from django_jobs.signals import job_ended

logger = logging.getLogger("django_jobs.jobs")


def log_end(sender: str, run: Run, outcome: Outcome, seconds: float, **_: Any) -> None:
    """One line for each ended run."""
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
            logger.info(line, *values)


job_ended.connect(log_end, dispatch_uid="django_jobs.logs")
