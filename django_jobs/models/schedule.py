"""Schedules: as workers declared them last, and how far each is decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db import IntegrityError, models, transaction
from django.db.models import F
from django.db.models.functions import Now

from django_jobs import conf
from django_jobs.models import picking
from django_jobs.models.decision import CHANGED, decisions
from django_jobs.schedules import Timetable

HEARTBEAT = 60.0
"""Seconds between two notes of a worker that it knows its schedules."""

GONE = timedelta(seconds=180)
"""Without such a note for this long, no worker knows the schedule (as it is written there)."""

LONGEST_BACKOFF = 300.0


class ScheduleQuerySet(models.QuerySet["Schedule"]):
    """The statements of schedules. The database's clock decides in each."""

    def clocked(self) -> ScheduleQuerySet:
        """These rows, each with the database's ``clock``."""
        rows: ScheduleQuerySet = self.annotate(clock=Now())
        return rows

    def look(self, names: Collection[str], limit: int) -> list[Any]:
        """Up to ``limit`` of the schedules ``names``, the one to be looked at next first."""
        return list(self.filter(name__in=names).clocked().order_by("wake_at")[:limit])

    def declare(self, declared: Mapping[str, Timetable], *, first: bool) -> set[str]:
        """Bring the rows of ``declared`` up to date; the names of those that are ours to tend.

        Others are declared differently by workers that started later (``first``: this one has
        just started). When those are gone, or never were, their schedules become ours.
        """
        rows = {row.name: row for row in self.filter(name__in=declared).clocked()}
        self._add([one for name, one in declared.items() if name not in rows])
        ours = set(declared) - set(rows)
        for name, row in rows.items():
            one = declared[name]
            if row.cadence == str(one.cadence):
                ours.add(name)
                if row.policies != policies_of(one):
                    self.filter(name=name).update(**policies_of(one))
            elif self._change(row, one, first=first):
                ours.add(name)
        self._see(ours)
        return ours

    def _see(self, names: Collection[str]) -> None:
        """Note that a worker knows these; not of those that another one is at, and locked in order.

        A worker that stands still in the middle must not keep others from all schedules.
        """
        seen = self.filter(name__in=names)
        with transaction.atomic(using=self.db):
            if picking.is_postgres(self.db):
                free = seen.select_for_update(skip_locked=True).order_by("name")
                seen = self.filter(name__in=list(free.values_list("name", flat=True)))
            seen.update(seen_at=Now(), release=conf.current().release)

    def _add(self, new: Collection[Timetable]) -> None:
        """Rows for schedules that no worker has declared before: the past is none of theirs."""
        if not new:
            return
        now = clock(self.db)
        made = [
            Schedule(
                name=one.name,
                cadence=str(one.cadence),
                watermark=now,
                wake_at=one.cadence.after(now),
                **policies_of(one),
            )
            for one in new
        ]
        try:
            with transaction.atomic(using=self.db):
                self.bulk_create(made, batch_size=500)
        except IntegrityError:  # Another worker was at it too.
            known = set(
                self.filter(name__in=[row.name for row in made]).values_list("name", flat=True)
            )
            left = [one for one in new if one.name not in known]
            if len(left) == len(new):
                raise
            self._add(left)

    def _change(self, row: Any, one: Timetable, *, first: bool) -> bool:
        """Whether the row is now declared as we do.

        What was not due as it was declared before has not been missed. A worker of an older
        release that starts again finds its own way of it as the ``previous`` one, and leaves the
        newer alone while workers tend it; when they are gone (a roll-back), the older way holds
        again from their last sign of life, so that nothing is lost in between.
        """
        tended = row.seen_at is not None and row.clock - row.seen_at < GONE
        came_back = row.previous == str(one.cadence)
        if tended and (came_back or not first):
            return False
        since = row.seen_at if came_back and row.seen_at is not None else row.clock
        with transaction.atomic(using=self.db):
            changed = self._same(row).update(
                version=F("version") + 1,
                cadence=str(one.cadence),
                previous=row.cadence,
                watermark=max(since, row.watermark) if came_back else since,
                wake_at=Now(),
                error="",
                failures=0,
                **policies_of(one),
            )
            if changed:
                decisions(self.db).create(
                    schedule=row.name,
                    outcome=CHANGED,
                    reason=f"from {row.cadence} to {one.cadence}; nothing of the time before runs",
                )
        return bool(changed)

    def advance(self, row: Schedule, watermark: datetime, wake_at: datetime) -> bool:
        """Move the watermark, if everything still is as ``row`` was read; the row is then locked.

        The first statement of the transaction that stages the occurrence: who comes second
        finds another watermark and stages nothing.
        """
        if self._is_held(row):
            return False
        moved = self._same(row).update(
            watermark=watermark, wake_at=wake_at, error="", failures=0, version=F("version") + 1
        )
        return bool(moved)

    def _is_held(self, row: Schedule) -> bool:
        """Whether another worker is at it, or has changed it. One that stands still keeps its lock.

        On SQLite, where there is one writer, the UPDATE itself has to come first.
        """
        if not picking.is_postgres(self.db):
            return False
        return not list(self._same(row).select_for_update(skip_locked=True).values_list("version"))

    def _same(self, row: Schedule) -> ScheduleQuerySet:
        return self.filter(name=row.name, version=row.version)

    def fail(self, row: Schedule, error: str) -> int:
        """Note why its occurrence could not be staged; it is tried again after a while."""
        delay = min(LONGEST_BACKOFF, 5.0 * 2.0 ** min(row.failures, 10))
        return self._same(row).update(
            error=error,
            failures=F("failures") + 1,
            failed_at=Now(),
            wake_at=Now() + timedelta(seconds=delay),
        )

    def pause(self, name: str, *, by: str, reason: str) -> int:
        """Have its occurrences skipped from now on; 1 unless it was paused already."""
        rows = self.filter(name=name, paused_at=None)
        return rows.update(
            paused_at=Now(), paused_by=by, pause_reason=reason, version=F("version") + 1
        )

    def resume(self, name: str) -> int:
        """Have its occurrences run again; 1 if it was paused."""
        rows = self.filter(name=name, paused_at__isnull=False)
        return rows.update(
            paused_at=None,
            paused_by="",
            pause_reason="",
            wake_at=Now(),
            version=F("version") + 1,
        )


def clock(alias: str) -> datetime:
    """What the clock of the database ``alias`` shows."""
    shown = picking.run(alias, "clock", {})[0][0]
    return shown if isinstance(shown, datetime) else datetime.fromisoformat(shown + "+00:00")


def policies_of(one: Timetable) -> dict[str, Any]:
    """The columns that say how a schedule is declared, beside when it is due."""
    return {
        "job": one.definition.name,
        "zone": one.cadence.zone.key,
        "missed": one.missed if one.missed != "all" else f"all, at most {one.max_catch_up}",
        "overlap": one.overlap,
        "jitter": one.jitter,
        "per_tenant": one.per_tenant is not None,
    }


class Schedule(models.Model):
    """A schedule as workers declared it last, and how far it is decided."""

    name = models.CharField(max_length=200, primary_key=True)
    job = models.CharField(max_length=200)
    cadence = models.CharField(max_length=300, help_text="When it is due.")
    previous = models.CharField(max_length=300, db_default="", blank=True)
    zone = models.CharField(max_length=100, db_default="UTC")
    missed = models.CharField(max_length=30, db_default="skip")
    overlap = models.CharField(max_length=20, db_default="allow")
    jitter = models.IntegerField(db_default=0, help_text="Seconds.")
    per_tenant = models.BooleanField(db_default=False)
    version = models.IntegerField(
        db_default=0, help_text="Counts changes; who changes the row names the one that it read."
    )
    watermark = models.DateTimeField(help_text="Every occurrence up to here is decided.")
    wake_at = models.DateTimeField(help_text="When a scheduler looks at it next.")
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_by = models.CharField(max_length=200, db_default="", blank=True)
    pause_reason = models.TextField(db_default="", blank=True)
    error = models.TextField(db_default="", blank=True)
    failures = models.IntegerField(db_default=0)
    failed_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(
        null=True, blank=True, help_text="When a worker last said that it knows it."
    )
    release = models.CharField(max_length=100, db_default="", blank=True)
    created_at = models.DateTimeField(db_default=Now())

    objects: ClassVar[models.Manager[Schedule]] = models.Manager.from_queryset(ScheduleQuerySet)()

    class Meta:
        permissions = (
            ("pause_schedule", "Can pause and resume schedules"),
            ("trigger_schedule", "Can trigger schedules"),
        )
        indexes = (models.Index(name="django_jobs_schedule_wake", fields=("wake_at",)),)

    def __str__(self) -> str:
        return self.name

    @property
    def policies(self) -> dict[str, Any]:
        """What ``policies_of`` a declaration would have to be for the row to be right."""
        names = ("job", "zone", "missed", "overlap", "jitter", "per_tenant")
        return {name: getattr(self, name) for name in names}


def schedules(alias: str) -> ScheduleQuerySet:
    """The schedules in the database ``alias``."""
    rows: Any = Schedule.objects.using(alias)
    assert isinstance(rows, ScheduleQuerySet)
    return rows
