"""How full the queues are, as far as this process knows without asking each time.

The depth of a queue is the number of its ready rows that a worker may claim. It is counted up to
the queue's ``MAX_READY``, at most once a second, or sooner where it decides about a next chunk.
In between this process adds what it made ready itself.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.core.signals import setting_changed

from django_jobs import conf
from django_jobs.models import picking, publishing

LOW_WATER = 0.8
"""Share of ``MAX_READY`` below which an overflow may end."""

FRESH = 1.0
"""Seconds for which a count is believed."""

_ROWS_PER_SECOND = 50_000
"""Index entries that counting again and again may read, each second, for a queue that is full."""


@dataclass(slots=True)
class Gauge:
    """One queue. ``waiting``: rows that were published over its limit want the room that appears.

    It overflows from the moment when its limit is reached until it is below the low water and
    nothing waits for it: what is enqueued in between goes behind what waits already.
    """

    limit: int
    depth: int = 0
    waiting: bool = False
    overflowing: bool = False
    read_at: float = -math.inf

    @property
    def room(self) -> int:
        """How many more may become ready, by what is known."""
        return max(0, self.limit - self.depth)

    @property
    def low(self) -> bool:
        """Whether it is below the low water."""
        return self.depth < self.limit * LOW_WATER

    @property
    def fresh(self) -> bool:
        """Whether the count is young enough to be believed."""
        return time.monotonic() - self.read_at < FRESH

    @property
    def due(self) -> bool:
        """Whether it is full as far as known, and old enough to be counted again."""
        pause = min(FRESH, max(0.02, self.limit / _ROWS_PER_SECOND))
        return self.room == 0 and time.monotonic() - self.read_at >= pause


_lock = threading.Lock()
_gauges: dict[tuple[str, str], Gauge] = {}
_looked: dict[str, float] = {}


def known() -> dict[str, Gauge]:
    """The gauges of the jobs' database, by queue."""
    alias = conf.current().database
    with _lock:
        return {queue: gauge for (of, queue), gauge in _gauges.items() if of == alias}


def gauge_of(queue: str) -> Gauge:
    """The gauge of ``queue``, counted now unless its count is fresh."""
    found = known().get(queue)
    if found is None or not found.fresh:
        look([queue])
        found = known()[queue]
    return found


def look(queues: Iterable[str]) -> None:
    """Count ``queues``, and those that have rows waiting for room."""
    settings = conf.current()
    alias = settings.database
    asked = sorted(set(queues))
    limits = [settings.ready_limit(queue) for queue in asked]
    parameters: dict[str, Any] = {
        "queues": asked if picking.is_postgres(alias) else json.dumps(asked),
        "bound": max(limits, default=settings.ready_limit("*")),
    }
    before = known()
    now = time.monotonic()
    for queue, depth, waiting in picking.run(alias, "depths", parameters):
        gauge = Gauge(settings.ready_limit(queue), depth, bool(waiting), read_at=now)
        gauge.overflowing = _overflows(queue, gauge, before.get(queue))
        with _lock:
            _gauges[alias, queue] = gauge
    with _lock:
        _looked[alias] = now


def looked_lately() -> bool:
    """Whether rows that wait for room would have been seen within the last second."""
    at = _looked.get(conf.current().database, -math.inf)
    return time.monotonic() - at < FRESH


def _overflows(queue: str, gauge: Gauge, before: Gauge | None) -> bool:
    if gauge.room == 0:
        return True
    began = before is not None and before.overflowing
    return (began or not gauge.low) and (gauge.waiting or is_buffered(queue))


def is_buffered(queue: str) -> bool:
    """Whether committed entries of any outbox want room in ``queue``."""
    for alias in conf.current().outbox_aliases:
        entries = publishing.outbox(alias).pending().filter(buffer=queue)
        # Not exists(), which drops the order, and with it the index that has this order.
        if entries.order_by("tenant", "seq").values_list("seq", flat=True).first() is not None:
            return True
    return False


def count(queue: str, made_ready: int) -> None:
    """Add what this process made ready itself since the queue was counted."""
    with _lock:
        gauge = _gauges.get((conf.current().database, queue))
        if gauge is not None:
            gauge.depth += made_ready


def expire() -> None:
    """Believe no count any more: the next one who needs it counts."""
    with _lock:
        for gauge in _gauges.values():
            gauge.read_at = -math.inf
        _looked.clear()


def forget(**_: object) -> None:
    """Know nothing, as a process that has just begun."""
    with _lock:
        _gauges.clear()
        _looked.clear()


setting_changed.connect(forget, dispatch_uid="django_jobs.depths")
