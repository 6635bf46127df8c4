"""The scheduler: occurrences that are due become jobs. Any number of processes may run it."""

from __future__ import annotations

import logging
import random
import time
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError

from django_jobs import conf
from django_jobs.failures import gist
from django_jobs.models import picking
from django_jobs.models.schedule import HEARTBEAT, schedules
from django_jobs.operations.firing import fire_due
from django_jobs.schedules import timetables

logger = logging.getLogger("django_jobs.scheduler")

BATCH = 100
SHARE = 0.5
"""Seconds that one tick may take from the loops beside it; what is left is due at the next."""

LOOK_INTERVAL = 5.0
"""Seconds after which it looks even if nothing was to be due: the database's clock was set on."""

SHORTEST_PAUSE = 0.005

HELD_PAUSE = 0.05
"""Seconds until it looks again where what is due may be in the hands of others."""


class Scheduler:
    """Looks for due schedules and fires them.

    When something is due is said by the database, and this process's monotonic clock only tells
    how long to sleep until then: its own time of day is asked nowhere.
    """

    def __init__(self) -> None:
        self._ours: frozenset[str] = frozenset()
        self._declared_at: float | None = None
        self._look_at = 0.0

    def pause(self) -> float:
        """Seconds until it has to look again."""
        return max(0.0, self._look_at - time.monotonic())

    def tick(self) -> int:
        """Fire what is due; how many jobs were staged. No statement before anything can be due."""
        began = time.monotonic()
        if not timetables() or began < self._look_at:
            if began >= self._look_at:
                self._look_at = began + LOOK_INTERVAL
            return 0
        self._declare(began)
        rows = schedules(conf.current().database)
        ours = self._ours & timetables().keys()
        head = rows.look(ours, 1)
        if not head or head[0].wake_at > head[0].clock:
            self._sleep(head)
            return 0
        made = 0
        due = [row for row in rows.look(ours, BATCH) if row.wake_at <= row.clock]
        # Workers that wake up at the same moment begin at different ends.
        random.shuffle(due)
        for row in due:
            made += _fire(row)
            if time.monotonic() - began > SHARE:
                break
        if not made:
            self._look_at = time.monotonic() + HELD_PAUSE
        return made

    def _declare(self, now: float) -> None:
        first = self._declared_at is None
        if self._declared_at is None or now - self._declared_at >= HEARTBEAT:
            rows = schedules(conf.current().database)
            self._ours = frozenset(rows.declare(timetables(), first=first))
            self._declared_at = now

    def _sleep(self, head: list[Any]) -> None:
        pause = LOOK_INTERVAL
        if head:
            left = (head[0].wake_at - head[0].clock).total_seconds()
            pause = max(SHORTEST_PAUSE, min(pause, left))
        self._look_at = time.monotonic() + pause


def _fire(row: Any) -> int:
    """Fire one schedule; its failure is its own, and is stored on its row."""
    declared = timetables()[row.name]
    try:
        return picking.retrying(lambda: fire_due(row, declared))
    except (OperationalError, InterfaceError) as error:
        if isinstance(error, OperationalError) and picking.is_contention(error):
            return 0  # Others are at it.
        if picking.is_outage(error):
            raise
        _fail(row, error)
    except DatabaseError as error:
        if picking.is_outage(error):
            raise
        _fail(row, error)
    except Exception as error:
        _fail(row, error)
    return 0


def _fail(row: Any, error: Exception) -> None:
    logger.error("schedule %s: %s", row.name, gist(error), exc_info=error)
    schedules(conf.current().database).fail(row, gist(error))
