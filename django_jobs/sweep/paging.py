"""One page after the other of one range, each with its cursor in one transaction."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field
from typing import Any

from django.db import InterfaceError, OperationalError

from django_jobs.backfills import Backfill as Declaration
from django_jobs.backfills import Keyset, Page
from django_jobs.current import CurrentJob
from django_jobs.errors import JobTimeout, RetryAfter, Terminal
from django_jobs.failures import gist
from django_jobs.models import Advance, BackfillRange, OwnRows, SkippedRow, picking
from django_jobs.sweep.pacing import Halted, Pacer

logger = logging.getLogger("django_jobs.backfills")

GROWTH = 1.2
"""By how much a page may be larger than the one before, toward the target duration."""
PATIENCE = 8
"""How often in a row one row may meet a deadlock or a time-out."""


@dataclass(slots=True)
class Pages:
    """The pages of ``range``. ``limit`` is the size of the next one, ``batch`` what it may be."""

    declared: Declaration
    keyset: Keyset
    current: CurrentJob
    pacer: Pacer
    range: BackfillRange
    skips_left: int
    tenant: str = ""
    batch: int = 0
    limit: int = 0
    meetings: int = 0
    handled: list[Any] = field(default_factory=list)
    moved: Advance | None = None

    def run(self) -> None:
        """Handle what is left of the range. Raises ``Halted``, and what the body raises."""
        self.limit = self.batch = self.range.batch or self.declared.declared.batch
        while not self.range.done:
            self.pacer.wait()
            self.pacer.page_began()
            try:
                seconds = self._page()
            except OperationalError as error:
                self._after_contention(error)
            except (Terminal, RetryAfter, Halted, JobTimeout, InterfaceError):
                raise
            except Exception as error:
                self._after_row_error(error)
            else:
                self._after_page(seconds)

    def _page(self) -> float:
        """One page, in ``handled``; how many seconds it took."""
        began = time.monotonic()
        if self.declared.declared.atomic:
            with self.current.atomic():
                self._handle()
                self._advance()
        else:
            self._handle()
            with self.current.atomic():
                self._advance()
        return time.monotonic() - began

    def _handle(self) -> None:
        self.handled = []
        start = self.range.cursor if self.range.cursor is not None else self.range.after
        places = self.keyset.page(start, self.range.upto, self.limit)
        pks = [place[0] for place in places]
        if len(set(pks)) < len(pks):
            raise Terminal(
                f"{self.declared.name}: source yields a row twice, because of a join. "
                "Add distinct() to it, or filter with Exists()."
            )
        self.handled = places
        if pks:
            self.declared.handle(Page(self.keyset, pks, self.tenant))
            self.current.check()

    def _advance(self) -> None:
        ranges = BackfillRange.objects.all()
        if not self.handled:
            if not ranges.finish(self.range.pk, self.current.id):
                raise Halted
            self.range.done = True
            return
        done = len(self.handled) < self.limit
        self._move(Advance(self.range.cursor, self._last, len(self.handled), 0, self.batch, done))

    def _skip(self, error: Exception) -> None:
        """List the one row of the page that failed, and pass it over."""
        with self.current.atomic():
            SkippedRow.objects.using(BackfillRange.objects.all().db).create(
                backfill_id=self.range.backfill_id, key=self._last, error=gist(error)
            )
            self._move(Advance(self.range.cursor, self._last, 0, 1, self.batch, False))

    @property
    def _last(self) -> str:
        return self.keyset.cursor(self.handled[-1])

    def _move(self, page: Advance) -> None:
        if not BackfillRange.objects.all().advance(self.range.pk, self.current.id, page):
            raise Halted
        self.moved = page

    def _after_page(self, seconds: float) -> None:
        """The transaction has committed: what it moved is so."""
        if self.moved is not None:
            self.range.cursor, self.range.done = self.moved.new, self.moved.done
            self.moved = None
        self.meetings = 0
        self.pacer.page_ended(len(self.handled))
        if isinstance(self.current.rows, OwnRows):
            self.current.rows.forget_failures()
        target = self.declared.declared.target
        if target is not None and len(self.handled) == self.limit == self.batch:
            wanted = self.batch * min(GROWTH, max(0.5, target / max(seconds, 1e-6)))
            self.batch = max(1, min(math.ceil(wanted), self.declared.declared.max_batch))
            self.limit = self.batch
        else:
            self.limit = min(self.batch, 2 * self.limit)

    def _after_contention(self, error: OperationalError) -> None:
        """Others are at the same rows, or it takes too long: a smaller page may get through."""
        self.current.check()
        if not (picking.is_contention(error) or picking.was_canceled(error)):
            raise error
        self.meetings += self.limit == 1
        if self.meetings >= PATIENCE:
            raise error
        logger.info("backfill %s: %s; halving the page", self.declared.name, gist(error))
        self.limit = max(1, self.limit // 2)
        self.current.cancelled.wait(0.05)

    def _after_row_error(self, error: Exception) -> None:
        """Halve the page until the row is found that fails; list it and pass it over."""
        if not self.declared.declared.skip or not self.handled:
            raise error
        if len(self.handled) > 1:
            self.limit = len(self.handled) // 2
            return
        if self.skips_left < 1:
            error.add_note(f"{self.declared.declared.skip} rows were skipped before this one.")
            raise error
        self.skips_left -= 1
        logger.warning("backfill %s skips a row: %s", self.declared.name, gist(error))
        self._skip(error)
        self._after_page(0.0)
