"""What a sweep waits for between two pages: its rate, the database's health, old transactions."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from uuid import UUID

from django_jobs.backfills import Backfill as Declaration
from django_jobs.current import CurrentJob
from django_jobs.models import Backfill, picking
from django_jobs.models.health import fault
from django_jobs.models.horizon import Horizon, older_than
from django_jobs.states import PassState

logger = logging.getLogger("django_jobs.backfills")

LOOK_EVERY = 0.25
"""Seconds for which an order (pause, another rate) may go unseen; a page's commit sees it too."""
HEALTH_EVERY = 2.0
"""Seconds between two measurements of health."""
SHORTEST = 0.001
LONGEST_PAUSE = 15.0


class Halted(Exception):
    """The pass was paused or cancelled, or the range is another job's."""


@dataclass(slots=True)
class Pacer:
    """The pace of one job of one pass. ``note`` is what the ledger says that it waits for."""

    declared: Declaration
    current: CurrentJob
    pass_id: UUID
    alias: str
    rate: float | None = None
    rate_per: str = "pages"
    note: str = ""
    _began: float | None = None
    _rows: int = 0
    _looked_at: float = field(default=-LOOK_EVERY)
    _measured_at: float = field(default=-HEALTH_EVERY)

    def look(self, *, now: bool = False) -> None:
        """Take note of orders; raises ``Halted`` unless the pass runs."""
        if not now and time.monotonic() - self._looked_at < LOOK_EVERY:
            return
        row = Backfill.objects.filter(pk=self.pass_id)
        state, self.rate, self.rate_per = row.values_list("state", "rate", "rate_per").get()
        self._looked_at = time.monotonic()
        if state != PassState.RUNNING:
            raise Halted

    def page_began(self) -> None:
        """A page begins now: its own time counts towards the interval."""
        self._began = time.monotonic()

    def page_ended(self, rows: int) -> None:
        """The page that began last has handled ``rows``."""
        self._rows = rows

    def wait(self) -> None:
        """Wait until the next page may begin. Raises ``Halted``; ``LeaseLost`` at once."""
        self.look()
        while self._began is not None:
            left = self._began + self._interval() - time.monotonic()
            if left < SHORTEST:
                break
            self._sleep(min(left, LOOK_EVERY))
        self._wait_for_health()
        self.current.check()

    def wait_for_older(self, horizon: Horizon | None) -> None:
        """Wait until every transaction from before ``horizon`` has ended."""
        pause = 0.05
        while horizon is not None and (oldest := older_than(self.alias, horizon)):
            self._tell(f"waits for a transaction older than the pass: {oldest}")
            self._sleep(pause)
            pause = min(2 * pause, 2.0)
        self._tell("")

    def _interval(self) -> float:
        if self.rate is None:
            return 0.0
        return (self._rows if self.rate_per == "rows" else 1) / self.rate

    def _wait_for_health(self) -> None:
        pause = 0.5
        while reason := self._unwell():
            self._tell(reason)
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            self._measured_at = -HEALTH_EVERY
        self._tell("")

    def _unwell(self) -> str:
        if self.declared.declared.throttle is not None:
            reason = self.declared.declared.throttle()
            if reason:
                return f"throttle: {reason}"[:500]
        if time.monotonic() - self._measured_at < HEALTH_EVERY or not picking.is_postgres(
            self.alias
        ):
            return ""
        self._measured_at = time.monotonic()
        return fault(self.alias, self.declared.declared.health)

    def _sleep(self, seconds: float) -> None:
        """Wait; the run's end, and an order, end it soon."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.current.cancelled.wait(min(left, LOOK_EVERY))
            self.current.check()
            self.look()

    def _tell(self, note: str) -> None:
        if note == self.note:
            return
        if note:
            logger.info("backfill %s: %s", self.declared.name, note)
        Backfill.objects.filter(pk=self.pass_id, state=PassState.RUNNING).update(note=note)
        self.note = note
