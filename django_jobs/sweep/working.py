"""From the beginning of a job's part in a pass to its end."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import IntegrityError

from django_jobs import conf
from django_jobs.backfills import Backfill as Declaration
from django_jobs.backfills import Keyset
from django_jobs.current import CurrentJob, current_job
from django_jobs.errors import (
    AtomicNeedsOneDatabase,
    BackfillRefused,
    BackfillStalled,
    Terminal,
)
from django_jobs.failures import gist
from django_jobs.models import Backfill, BackfillRange, OwnRows, SkippedRow, picking
from django_jobs.models.horizon import Horizon, horizon
from django_jobs.operations.gate import check_environment, check_requires
from django_jobs.retries import decide
from django_jobs.states import PassState
from django_jobs.sweep.pacing import Halted, Pacer
from django_jobs.sweep.paging import Pages
from django_jobs.sweep.planning import expected_rows, split

logger = logging.getLogger("django_jobs.backfills")


def work(declared: Declaration, pass_id: UUID) -> dict[str, Any]:
    """The body of a backfill's job: work on its pass until nothing is left for this job.

    Returns what the ledger says at the end. Raises what the body raised; the ledger says failed
    if no attempt follows.
    """
    sweep = Sweep(declared, pass_id, current_job())
    try:
        check_environment(declared)
        sweep.run()
    except Halted:
        logger.info("backfill %s: pass %s is not this job's to work on", declared.name, pass_id)
    except Exception as error:
        sweep.failed(error)
        raise
    return sweep.report()


@dataclass(slots=True)
class Sweep:
    """One job at one pass."""

    declared: Declaration
    pass_id: UUID
    current: CurrentJob
    keyset: Keyset = field(init=False)
    pacer: Pacer = field(init=False)

    def run(self) -> None:
        """Plan it, if nobody has; sweep ranges while there are any; close the pass."""
        if not self._adopted():
            raise Halted
        row = self._row()
        if row.tenant and row.tenant != self.current.tenant:
            raise Terminal(f"pass {row.pk} is tenant {row.tenant!r}'s, not this job's")
        self.keyset = self.declared.keyset(row.tenant)
        self._check(self.keyset.alias)
        self.pacer = Pacer(self.declared, self.current, self.pass_id, self.keyset.alias)
        if row.sweeps == 0:
            self._plan()
        while True:
            taken = self._take()
            if taken is not None:
                self._sweep(taken)
            elif BackfillRange.objects.filter(backfill_id=self.pass_id, done=False).exists():
                return  # Other jobs are at the rest, and the last of them closes the pass.
            elif self._closed():
                return

    def report(self) -> dict[str, Any]:
        """What the ledger says."""
        row: Any = Backfill.objects.all().with_progress().get(pk=self.pass_id)
        counted = {"pages": row.pages, "rows": row.rows, "skipped": row.skipped}
        return {"pass": str(row.pk), "state": row.state, **counted}

    def failed(self, error: Exception) -> None:
        """Note in the ledger what an attempt died of, and the end if no other follows."""
        retry = self.declared.job.retry
        again = decide(retry, error, self.current.attempt, self.current.max_attempts).again
        rows = Backfill.objects.filter(pk=self.pass_id)
        try:
            with self._bookkeeping():
                if again:
                    rows.filter(state=PassState.RUNNING).update(error=gist(error))
                else:
                    rows.end(PassState.FAILED, error=gist(error), note="")
        except Exception as lost:
            # Whatever keeps the ledger from being written must not hide what went wrong first.
            logger.warning("backfill %s: the ledger: %s", self.declared.name, gist(lost))

    def _bookkeeping(self) -> AbstractContextManager[object]:
        """A fenced transaction; unlike ``current.atomic()`` also past the job's deadline."""
        assert isinstance(self.current.rows, OwnRows)
        return self.current.rows.fenced()

    def _row(self) -> Backfill:
        row: Backfill = Backfill.objects.get(pk=self.pass_id)
        return row

    def _check(self, alias: str) -> None:
        jobs = conf.current().database
        if self.declared.declared.atomic and alias != jobs:
            raise AtomicNeedsOneDatabase(self.declared.name, alias, jobs)
        check_requires(self.declared, alias)

    def _adopted(self) -> bool:
        row = Backfill.objects.filter(pk=self.pass_id).first()
        if row is None:
            raise Terminal(f"{self.declared.name}: pass {self.pass_id} is no longer in the ledger")
        if row.started_at is not None and row.checksum != self.declared.checksum:
            logger.warning(
                "backfill %s: pass %s goes on with other code than it began with (%s, now %s)",
                *(self.declared.name, row.pk, row.checksum, self.declared.checksum),
            )
        try:
            with self.current.atomic():
                mine = Backfill.objects.filter(pk=self.pass_id)
                return bool(mine.adopt(conf.current().release, self.declared.checksum))
        except IntegrityError as error:
            raise BackfillRefused(
                "running", f"another pass of {self.declared.name} is open; pass {row.pk} stays."
            ) from error

    def _plan(self) -> None:
        """Fix the bounds. Without ``count`` nothing later could tell of a row committed late."""
        moment = horizon(self.keyset.alias)
        mine = Backfill.objects.filter(pk=self.pass_id)
        if moment is not None:
            mine.filter(horizon=None).update(horizon=moment.number, horizon_at=moment.at)
        if self.declared.declared.count is None:
            self.pacer.wait_for_older(self._horizon())
        first, last = self.keyset.first(), self.keyset.last()
        expected = expected_rows(self.keyset)
        parts: list[tuple[str | None, str | None]] = [(None, None)]
        if first is not None and last is not None:
            parts = [*split(self.keyset, first, last, self.declared.declared.shards)]
        with self.current.atomic():
            planned = mine.filter(sweeps=0, state=PassState.RUNNING)
            if not planned.update(sweeps=1, expected=expected):
                raise Halted
            BackfillRange.objects.filter(backfill_id=self.pass_id).delete()
            for number, (after, upto) in enumerate(parts):
                self._add_range(number, after, upto)
            for _ in range(min(len(parts), self.declared.declared.parallel) - 1):
                job = self.declared.job.using(database=conf.current().database)
                job.enqueue(pass_id=self.pass_id, tenant=self._row().tenant)

    def _add_range(self, number: int, after: str | None, upto: str | None) -> None:
        batch = self.declared.declared.batch
        made = {"number": number, "after": after, "upto": upto, "done": upto is None}
        BackfillRange.objects.create(backfill_id=self.pass_id, batch=batch, **made)

    def _horizon(self) -> Horizon | None:
        row = self._row()
        if row.horizon is None or row.horizon_at is None:
            return None
        return Horizon(row.horizon, row.horizon_at)

    def _take(self) -> BackfillRange | None:
        with picking.own_transaction(conf.current().database):
            taken: BackfillRange | None = BackfillRange.objects.all().take(
                self.pass_id, self.current.id
            )
        return taken

    def _sweep(self, taken: BackfillRange) -> None:
        skipped = SkippedRow.objects.using(taken._state.db).filter(backfill_id=self.pass_id)
        left = self.declared.declared.skip - skipped.count()
        parts = (self.declared, self.keyset, self.current, self.pacer)
        Pages(*parts, taken, left, tenant=taken.backfill.tenant).run()

    def _closed(self) -> bool:
        """Whether the pass has ended; if not, there is a range to sweep once more."""
        left = self._remaining()
        if left == 0:
            with self.current.atomic():
                values = {} if self.declared.declared.count is None else {"remaining": 0}
                ended = Backfill.objects.filter(pk=self.pass_id)
                if not ended.end(PassState.COMPLETED, note="", error="", **values):
                    raise Halted
            return True
        row, last = self._row(), self.keyset.last()
        before = row.remaining
        if last is None or (row.sweeps > 1 and before is not None and left >= before):
            raise BackfillStalled(
                f"{self.declared.name}: count says {left} after {row.sweeps} sweeps"
                + ("" if before is None else f" and said {before} before the last")
                + ". Either the body leaves rows as they were, count and source disagree, or "
                "something still writes such rows."
            )
        with self.current.atomic():
            mine = Backfill.objects.filter(pk=self.pass_id, sweeps=row.sweeps)
            if not mine.filter(state=PassState.RUNNING).update(
                sweeps=row.sweeps + 1, remaining=left
            ):
                raise Halted
            self._add_range(row.ranges.count(), None, last)
        return False

    def _remaining(self) -> int:
        """What ``count`` says once every transaction older than the pass has ended."""
        if self.declared.declared.count is None:
            return 0
        self.pacer.wait_for_older(self._horizon())
        left = self.declared.remaining(self._row().tenant)
        if isinstance(left, bool) or not isinstance(left, int) or left < 0:
            raise Terminal(
                f"{self.declared.name}: count returned {left!r}; expected a whole number from 0."
            )
        return left
