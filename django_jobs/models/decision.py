"""Decisions about occurrences of schedules: why each ran or did not."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from django_jobs.models.job import Job
from django_jobs.models.publishing import outbox
from django_jobs.states import LIVE, State

FIRED, TRIGGERED, QUEUED = "fired", "triggered", "queued"
SKIPPED, COALESCED, CHANGED = "skipped", "coalesced", "changed"
OUTCOMES = (FIRED, TRIGGERED, QUEUED, SKIPPED, COALESCED, CHANGED)


class DecisionQuerySet(models.QuerySet["ScheduleDecision"]):
    """The statements of decisions."""

    def queued(self, schedule: str) -> list[ScheduleDecision]:
        """The occurrences that wait for earlier ones to end, oldest first."""
        return list(self.filter(schedule=schedule, outcome=QUEUED).order_by("id"))

    def unended(self, schedule: str) -> dict[str, UUID]:
        """By tenant a job of the schedule that has not ended; what has ended is noted as such."""
        mine = self.filter(schedule=schedule, open=True, job_id__isnull=False)
        found = mine.values_list("job_id", "tenant")
        tenants = {job_id: tenant for job_id, tenant in found if job_id is not None}
        live = self._live(tenants)
        ended = set(tenants) - live
        if ended:
            mine.filter(job_id__in=ended).update(open=False)
        return {tenants[job_id]: job_id for job_id in live}

    def _live(self, ids: Collection[UUID]) -> set[UUID]:
        if not ids:
            return set()
        # The body of a cancelled job may run on for a moment.
        stopping = Q(state=State.CANCELLED, lease_expires_at__gt=Now()) & ~Q(worker="")
        jobs = Job.objects.using(self.db).filter(Q(state__in=LIVE) | stopping, id__in=ids)
        staged = outbox(self.db).pending().filter(id__in=ids)
        return {*jobs.values_list("id", flat=True), *staged.values_list("id", flat=True)}

    def prune(self, age: float, limit: int) -> int:
        """Delete decisions older than ``age`` seconds, except of jobs that have not ended."""
        old = self.filter(decided_at__lt=Now() - timedelta(seconds=age)).exclude(outcome=QUEUED)
        found = dict(old.order_by("decided_at").values_list("id", "job_id")[:limit])
        live = self._live([job_id for job_id in found.values() if job_id is not None])
        ended = [id_ for id_, job_id in found.items() if job_id not in live]
        return self.filter(id__in=ended).delete()[0]


class ScheduleDecision(models.Model):
    """What became of an occurrence, or of several in a row, and why."""

    schedule = models.CharField(max_length=200)
    tenant = models.CharField(max_length=200, db_default="", blank=True)
    occurrence = models.DateTimeField(null=True, blank=True)
    since = models.DateTimeField(null=True, blank=True, help_text="The first of several.")
    occurrences = models.IntegerField(db_default=1)
    outcome = models.CharField(max_length=20, choices=[(o, o) for o in OUTCOMES])
    reason = models.TextField(db_default="", blank=True)
    job_id = models.UUIDField(null=True, blank=True)
    open = models.BooleanField(
        db_default=False, help_text="Its job had not ended when it was last looked at."
    )
    decided_at = models.DateTimeField(db_default=Now())

    objects: ClassVar[models.Manager[ScheduleDecision]] = models.Manager.from_queryset(
        DecisionQuerySet
    )()

    class Meta:
        indexes = (
            models.Index(name="django_jobs_decision_list", fields=("schedule", "id")),
            models.Index(
                name="django_jobs_decision_open", fields=("schedule",), condition=Q(open=True)
            ),
            models.Index(
                name="django_jobs_decision_queued",
                fields=("schedule",),
                condition=Q(outcome=QUEUED),
            ),
            models.Index(name="django_jobs_decision_age", fields=("decided_at",)),
        )

    def __str__(self) -> str:
        return f"{self.schedule} {self.outcome}"


def decisions(alias: str) -> DecisionQuerySet:
    """The decisions in the database ``alias``."""
    rows: Any = ScheduleDecision.objects.using(alias)
    assert isinstance(rows, DecisionQuerySet)
    return rows
