"""Overflows as operators see them: a line at the beginning, one at the end, alerts in between."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from django_jobs import conf
from django_jobs.models import Job, depths, publishing
from django_jobs.signals import queue_overflowing

logger = logging.getLogger("django_jobs.overflow")

COUNTED = 10_000
"""Waiting entries that are counted at most: more means the same to whoever reads it."""


@dataclass(slots=True)
class Overflow:
    """One overflow that this process has seen begin. Times are of the monotonic clock."""

    began: float
    alerted: float


_open: dict[tuple[str, str], Overflow] = {}


def is_open() -> bool:
    """Whether a queue of the jobs' database overflows, as far as this process has seen."""
    alias = conf.current().database
    return any(of == alias for of, _ in _open)


def follow() -> None:
    """Tell of what has changed since the last time, and of overflows that last too long."""
    alias, now = conf.current().database, time.monotonic()
    for queue, gauge in depths.known().items():
        overflow = _open.get((alias, queue))
        if overflow is None and gauge.overflowing:
            _open[alias, queue] = Overflow(now, now)
            logger.warning(
                "queue %s overflows: %d ready, limit %d; %s", queue, *_told(queue, gauge)
            )
        elif overflow is not None and not gauge.overflowing:
            del _open[alias, queue]
            logger.warning(
                "queue %s has room again after %.1f s: %d ready, limit %d; %s",
                queue,
                now - overflow.began,
                *_told(queue, gauge),
            )
        elif overflow is not None and now - overflow.alerted >= conf.current().overflow_alert:
            overflow.alerted = now
            _alert(queue, gauge, now - overflow.began)


def _alert(queue: str, gauge: depths.Gauge, seconds: float) -> None:
    logger.warning(
        "queue %s has overflowed for %.0f s: %d ready, limit %d; %s. Its workers are too few, too "
        "slow or gone; add some, or raise DJANGO_JOBS['MAX_READY'].",
        queue,
        seconds,
        *_told(queue, gauge),
    )
    queue_overflowing.send_robust(
        sender=queue, depth=gauge.depth, backlog=_backlog(queue), seconds=seconds
    )


def _told(queue: str, gauge: depths.Gauge) -> tuple[int, int, str]:
    backlog = _backlog(queue)
    more = " or more" if backlog >= COUNTED else ""
    return gauge.depth, gauge.limit, f"{backlog}{more} wait"


def _backlog(queue: str) -> int:
    """What waits for room in ``queue``, counted up to ``COUNTED``."""
    waiting: int = (
        Job.objects.filter(state="ready", blocked=True, queue=queue)
        .filter(lane__isnull=False, concurrency_key=None)[:COUNTED]
        .count()
    )
    for alias in conf.current().outbox_aliases:
        entries = publishing.outbox(alias).pending().filter(buffer=queue)
        waiting += entries.order_by("tenant", "seq")[:COUNTED].count()
    return min(waiting, COUNTED)
