"""The ledger of backfills: a row for each pass, one for each of its ranges, one for each skip.

Lock order: pass, range, then the job's row by the fence. A page locks its range only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from uuid import UUID

from django.db import models
from django.db.models import Exists, F, OuterRef, Q, Sum
from django.db.models.functions import Coalesce, Now

from django_jobs import conf
from django_jobs.errors import UnknownValue
from django_jobs.ids import new_id
from django_jobs.models.job import Job
from django_jobs.models.outbox import Outbox
from django_jobs.states import LIVE, OPEN_PASSES, PassState


@dataclass(frozen=True, slots=True)
class Advance:
    """What one page changed: from which cursor to which, and how many rows."""

    old: str | None
    new: str
    rows: int
    skipped: int
    batch: int
    done: bool
    """There is no row behind it."""


class BackfillQuerySet(models.QuerySet["Backfill"]):
    """The verbs of the ledger. Each says how many rows it moved."""

    def move(self, sources: Sequence[PassState], target: PassState, **values: Any) -> int:
        """The guarded UPDATE under every change of state: only from ``sources``."""
        return self.filter(state__in=[s.value for s in sources]).update(
            state=target.value, **values
        )

    def adopt(self, release: str, checksum: str) -> int:
        """A job begins or resumes the pass: ``running``, its start kept, its end forgotten."""
        return self.move(
            (PassState.RUNNING, PassState.FAILED),
            PassState.RUNNING,
            started_at=Coalesce("started_at", Now()),
            finished_at=None,
            error="",
            release=release,
            checksum=checksum,
        )

    def end(self, target: PassState, **values: Any) -> int:
        """The pass is over, by itself."""
        return self.move((PassState.RUNNING,), target, finished_at=Now(), **values)

    def with_progress(self) -> Self:
        """With ``rows``, ``pages``, ``skipped``, ``beat_at`` and ``live`` (a job works on it)."""
        ranges = BackfillRange.objects.using(self.db).filter(backfill=OuterRef("pk"))
        of_pass = ranges.order_by().values("backfill")
        live = Job.objects.using(self.db).filter(state__in=LIVE)
        waiting = Outbox.objects.using(self.db).filter(outcome=None)
        working = ranges.filter(Exists(live.filter(id=OuterRef("job_id"))))
        return self.annotate(
            rows=Coalesce(of_pass.annotate(n=Sum("rows")).values("n"), 0),
            pages=Coalesce(of_pass.annotate(n=Sum("pages")).values("n"), 0),
            skipped=Coalesce(of_pass.annotate(n=Sum("skipped")).values("n"), 0),
            beat_at=ranges.order_by("-beat_at").values("beat_at")[:1],
            live=Q(Exists(working))
            | Q(Exists(live.filter(id=OuterRef("job_id"))))
            | Q(Exists(waiting.filter(id=OuterRef("job_id")))),
        )


class BackfillManager(models.Manager.from_queryset(BackfillQuerySet)):  # type: ignore[misc]
    """Reads and writes the jobs' own database, never what a router would choose."""

    def get_queryset(self) -> BackfillQuerySet:
        """All passes."""
        rows: BackfillQuerySet = super().get_queryset().using(self._db or conf.current().database)
        return rows


class Backfill(models.Model):
    """One pass of a backfill. A forced rerun is another row; what has ended is never edited."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=200)
    tenant = models.CharField(max_length=200, db_default="", blank=True)
    state = models.CharField(
        max_length=10,
        db_default=PassState.RUNNING.value,
        choices=[(s.value, s.value) for s in PassState],
    )
    checksum = models.CharField(max_length=32, help_text="Of the code that worked on it last.")
    release = models.CharField(max_length=100, db_default="", blank=True)
    job_id = models.UUIDField(null=True, blank=True, help_text="The job enqueued for it last.")
    rate = models.FloatField(null=True, blank=True, help_text="At most so many a second.")
    rate_per = models.CharField(max_length=5, db_default="pages")
    expected = models.BigIntegerField(null=True, blank=True, help_text="Rows, an estimate.")
    remaining = models.BigIntegerField(null=True, blank=True, help_text="What count said last.")
    sweeps = models.IntegerField(db_default=0)
    horizon = models.BigIntegerField(
        null=True, blank=True, help_text="Transactions below it are older than the pass."
    )
    horizon_at = models.DateTimeField(null=True, blank=True)
    note = models.TextField(db_default="", blank=True, help_text="What it waits for now.")
    error = models.TextField(db_default="", blank=True)
    ordered_by = models.CharField(max_length=200, db_default="", blank=True)
    reason = models.TextField(db_default="", blank=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[BackfillManager] = BackfillManager()

    class Meta:
        verbose_name = "backfill pass"
        verbose_name_plural = "backfill passes"
        permissions = (("operate_backfill", "Can pause, resume, cancel and re-rate backfills"),)
        constraints = (
            models.UniqueConstraint(
                name="django_jobs_one_open_pass",
                fields=("name", "tenant"),
                condition=Q(state__in=[s.value for s in OPEN_PASSES]),
            ),
        )
        indexes = (
            models.Index(name="django_jobs_backfill_name", fields=("name", "tenant", "-id")),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.id}"

    @property
    def known_state(self) -> PassState:
        """The state; raises ``UnknownValue`` when a newer release wrote one we do not know."""
        try:
            return PassState(self.state)
        except ValueError:
            table = self._meta.db_table
            raise UnknownValue(table, "state", self.state, list(PassState)) from None


class BackfillRangeQuerySet(models.QuerySet["BackfillRange"]):
    """The verbs of ranges."""

    def advance(self, pk: int, job_id: UUID, page: Advance) -> int:
        """Move the cursor over one page, if it stands where the page began and the job may.

        The columns of the range are compared by the UPDATE itself: whoever waited for the row's
        lock compares again. ``state`` is only looked at: a page that meets a pause commits.
        """
        running = Backfill.objects.using(self.db).filter(
            pk=OuterRef("backfill_id"), state=PassState.RUNNING.value
        )
        at = Q(cursor__isnull=True) if page.old is None else Q(cursor=page.old)
        return self.filter(at, Exists(running), pk=pk, job_id=job_id, done=False).update(
            cursor=page.new,
            rows=F("rows") + page.rows,
            pages=F("pages") + 1,
            skipped=F("skipped") + page.skipped,
            batch=page.batch,
            done=page.done,
            beat_at=Now(),
        )

    def take(self, pass_id: UUID, job_id: UUID) -> BackfillRange | None:
        """Give ``job_id`` a range that no live job works on: its own first, then in order.

        Call it in a transaction of its own.
        """
        live = Job.objects.using(self.db).filter(id=OuterRef("job_id"), state__in=LIVE)
        free = Q(job_id=job_id) | Q(job_id__isnull=True) | ~Q(Exists(live))
        waiting = self.filter(free, backfill_id=pass_id, done=False)
        own = models.Case(models.When(job_id=job_id, then=0), default=1)
        found = waiting.order_by(own, "number").select_for_update(skip_locked=True).first()
        if found is None:
            return None
        # Another may have taken it between the look and the lock: its number says whose it is.
        before = Q(job_id__isnull=True) if found.job_id is None else Q(job_id=found.job_id)
        taken = self.filter(before, pk=found.pk, done=False).update(job_id=job_id, beat_at=Now())
        found.job_id = job_id
        return found if taken else None

    def finish(self, pk: int, job_id: UUID) -> int:
        """The range has no row left."""
        return self.filter(pk=pk, job_id=job_id, done=False).update(done=True, beat_at=Now())

    def let_go(self, pass_id: UUID) -> int:
        """Take every range that is not done from its job: what that job still does is void."""
        return self.filter(backfill_id=pass_id, done=False).update(job_id=None)


class BackfillRangeManager(models.Manager.from_queryset(BackfillRangeQuerySet)):  # type: ignore[misc]
    """Reads and writes the jobs' own database, never what a router would choose."""

    def get_queryset(self) -> BackfillRangeQuerySet:
        """All ranges."""
        rows: BackfillRangeQuerySet = super().get_queryset()
        return rows.using(self._db or conf.current().database)


class BackfillRange(models.Model):
    """A part of the keys of a pass, behind ``after`` and up to ``upto``, that one job works on."""

    backfill = models.ForeignKey(Backfill, models.CASCADE, related_name="ranges")
    number = models.IntegerField(db_default=0)
    after = models.TextField(null=True, blank=True)
    upto = models.TextField(null=True, blank=True)
    cursor = models.TextField(null=True, blank=True, help_text="The key of the last row handled.")
    rows = models.BigIntegerField(db_default=0)
    pages = models.BigIntegerField(db_default=0)
    skipped = models.BigIntegerField(db_default=0)
    batch = models.IntegerField(db_default=0)
    job_id = models.UUIDField(null=True, blank=True)
    beat_at = models.DateTimeField(db_default=Now())
    done = models.BooleanField(db_default=False)

    objects: ClassVar[BackfillRangeManager] = BackfillRangeManager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                name="django_jobs_backfill_range", fields=("backfill", "number")
            ),
        )

    def __str__(self) -> str:
        return f"range {self.number} of {self.backfill_id}"


class SkippedRow(models.Model):
    """A row whose change failed and was passed over."""

    backfill = models.ForeignKey(Backfill, models.CASCADE, related_name="skips")
    key = models.TextField()
    error = models.TextField(db_default="", blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("backfill", "pk")

    def __str__(self) -> str:
        return f"{self.key} of {self.backfill_id}"
