"""The job: one row for each piece of work, from its enqueue until its history is pruned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q, Value
from django.db.models.functions import Cast, Now

from django_jobs import conf
from django_jobs.errors import UnknownValue
from django_jobs.ids import new_id
from django_jobs.models import picking
from django_jobs.models.moves import RunMoves
from django_jobs.models.rescue import RescueMoves
from django_jobs.models.run import Run
from django_jobs.models.turns import PLACE_TYPES
from django_jobs.states import FINISHED, LIVE, State

KEY_BYTES = 512


class JobQuerySet(RunMoves, RescueMoves):  # type: ignore[override]
    """The verbs of the job table, and its reads."""

    def payload_of(self, job_id: UUID) -> str:
        """The payload's JSON text; for one that was too large to travel with its claim."""
        row = self.filter(id=job_id).annotate(text=Cast("payload", models.TextField()))
        text: str = row.values_list("text", flat=True).get()
        return text

    def unblock(self, places: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Give rows that wait for room their room; queue and tenant of each, in their turn.

        ``places``: rows of ``PLACE_TYPES``. Rows that somebody has locked are passed over.
        """
        if not places:
            return []
        with picking.own_transaction(self.db):
            source, parameters = picking.rows(self.db, PLACE_TYPES, places)
            rows = picking.run(self.db, "unblock", parameters, called=source)
            if not picking.is_postgres(self.db):
                ids = [picking.to_uuid(row[0]) for row in rows]
                self.filter(id__in=ids, state=State.READY, blocked=True).update(blocked=False)
        return [(row[1], row[2]) for row in sorted(rows, key=lambda row: row[3])]

    def running_for(self, job_id: UUID) -> float:
        """Seconds since the job started for the first time, by the database's clock."""
        row = self.filter(id=job_id).annotate(now=Now()).values_list("now", "started_at").first()
        return 0.0 if row is None or row[1] is None else float((row[0] - row[1]).total_seconds())

    def store_progress(self, run: Run, progress: str) -> bool:
        """Store a progress value (JSON text) of a run that still holds its lease."""
        held = self.filter(id=run.id, lease=run.lease, state=State.RUNNING)
        # As text: what Python's own encoder writes for a large float comes back as an int.
        text = Value(progress, models.TextField())
        return bool(held.update(progress=Cast(text, models.JSONField())))


class JobManager(models.Manager.from_queryset(JobQuerySet)):  # type: ignore[misc]
    """Reads and writes the jobs' own database, never what a router would choose.

    A replica that lags would show finished jobs as live, and dedupe new work onto them.
    """

    def get_queryset(self) -> JobQuerySet:
        """All jobs, in the jobs' own database."""
        rows: JobQuerySet = super().get_queryset().using(self._db or conf.current().database)
        return rows


class Job(models.Model):
    """One piece of durable work. Columns are written only by the moves of ``JobQuerySet``."""

    # Every column that is not null has a database default, so that a worker of the previous
    # release can insert into a table that this release has extended.
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run_id = models.UUIDField(default=new_id, help_text="Steps hang off this; kept by retries.")
    name = models.CharField(max_length=200)
    queue = models.CharField(max_length=100, db_default="default")
    priority = models.SmallIntegerField(db_default=0, help_text="Smaller runs first.")
    tenant = models.CharField(max_length=200, db_default="", blank=True)
    idempotency_key = models.CharField(max_length=KEY_BYTES)
    lane = models.CharField(max_length=KEY_BYTES, null=True, blank=True)
    lane_token = models.BigIntegerField(null=True, blank=True)
    payload = models.JSONField()
    state = models.CharField(
        max_length=10, db_default=State.READY.value, choices=[(s.value, s.value) for s in State]
    )
    run_at = models.DateTimeField(db_default=Now(), help_text="Due time; age is measured from it.")
    not_before = models.DateTimeField(null=True, blank=True)
    blocked = models.BooleanField(db_default=False, help_text="Waits for a key, or for room.")
    attempt = models.IntegerField(db_default=0)
    max_attempts = models.IntegerField(db_default=3)
    crashes = models.SmallIntegerField(db_default=0, help_text="Workers lost while running it.")
    lease = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=200, db_default="", blank=True)
    superseded_by = models.UUIDField(null=True, blank=True)
    cancelled_by = models.CharField(max_length=200, db_default="", blank=True)
    reason = models.TextField(db_default="", blank=True)
    retried_by = models.CharField(max_length=200, db_default="", blank=True)
    retry_reason = models.TextField(db_default="", blank=True)
    result = models.JSONField(null=True, blank=True)
    progress = models.JSONField(null=True, blank=True)
    concurrency_key = models.CharField(max_length=KEY_BYTES, null=True, blank=True)
    timeout = models.FloatField(null=True, blank=True, help_text="Seconds for each attempt.")
    traceparent = models.CharField(max_length=55, db_default="", blank=True)
    enqueued_by = models.CharField(max_length=200, db_default="", blank=True)
    release = models.CharField(max_length=100, db_default="", blank=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(
        null=True, blank=True, help_text="When a worker first claimed it."
    )
    finished_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[JobManager] = JobManager()

    class Meta:
        permissions = (
            ("cancel_job", "Can cancel jobs"),
            ("retry_job", "Can run finished jobs again"),
        )
        constraints = (
            models.CheckConstraint(
                name="django_jobs_job_state", condition=Q(state__in=[s.value for s in State])
            ),
            # The dedupe namespace. The publishing statement and the look-up of a live holder
            # name the same columns and states; a test holds the three equal.
            models.UniqueConstraint(
                name="django_jobs_job_live_key",
                fields=("name", "tenant", "idempotency_key"),
                condition=Q(state__in=[s.value for s in LIVE]),
            ),
        )
        indexes = (
            models.Index(
                name="django_jobs_job_claim",
                fields=("queue", "priority", "run_at", "id"),
                condition=Q(state="ready", blocked=False),
            ),
            models.Index(
                name="django_jobs_job_due",
                fields=("run_at",),
                condition=Q(state__in=("delayed", "suspended")),
            ),
            models.Index(
                name="django_jobs_job_lease",
                fields=("lease_expires_at",),
                condition=Q(state="running"),
            ),
            models.Index(
                name="django_jobs_job_finished",
                fields=("state", "finished_at"),
                condition=Q(state__in=[s.value for s in FINISHED]),
            ),
            models.Index(
                name="django_jobs_job_suspect",
                fields=("queue",),
                condition=Q(state="ready", crashes__gte=2),
            ),
            models.Index(
                name="django_jobs_job_lane",
                fields=("name", "tenant", "lane", "lane_token"),
                condition=Q(lane__isnull=False, state__in=[s.value for s in LIVE]),
            ),
            models.Index(
                name="django_jobs_job_blocked",
                fields=("concurrency_key", "priority", "run_at", "id"),
                condition=Q(blocked=True),
            ),
            models.Index(
                name="django_jobs_job_waiting",
                fields=("queue", "tenant", "run_at", "id"),
                condition=Q(
                    state="ready", blocked=True, lane__isnull=False, concurrency_key__isnull=True
                ),
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.id}"

    @property
    def known_state(self) -> State:
        """The state; raises ``UnknownValue`` when a newer release wrote one we do not know."""
        try:
            return State(self.state)
        except ValueError:
            table = self._meta.db_table
            raise UnknownValue(table, "state", self.state, list(State)) from None

    @property
    def is_live(self) -> bool:
        """Whether the job still holds its idempotency key."""
        return self.known_state in LIVE
