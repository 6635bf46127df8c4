"""What a run remembers of its steps."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from django_jobs.steps.memo import MAX_NAME, Kind, Status


class Step(models.Model):
    """One step of one run: what it has decided, or what it waits for.

    ``job_id`` is no foreign key: a key would lock the job's row for every insert here.
    """

    pk = models.CompositePrimaryKey("run_id", "name")
    run_id = models.UUIDField()
    name = models.CharField(max_length=MAX_NAME)
    job_id = models.UUIDField()
    position = models.IntegerField(db_default=0, help_text="In the order the run met its steps.")
    kind = models.CharField(max_length=10, choices=[(k.value, k.value) for k in Kind])
    status = models.CharField(max_length=10, choices=[(s.value, s.value) for s in Status])
    version = models.CharField(max_length=50, db_default="", blank=True)
    # Text, not jsonb: what is read again is the very text that the first pass has read.
    output = models.TextField(null=True, blank=True, help_text="JSON text.")
    attempts = models.IntegerField(db_default=0)
    error_class = models.CharField(max_length=200, db_default="", blank=True)
    error = models.TextField(db_default="", blank=True)
    wake_at = models.DateTimeField(null=True, blank=True)
    event = models.CharField(max_length=200, null=True, blank=True)
    match = models.CharField(max_length=512, null=True, blank=True)
    tenant = models.CharField(max_length=200, db_default="", blank=True)
    event_seq = models.BigIntegerField(null=True, blank=True, help_text="The event it has taken.")
    child = models.UUIDField(null=True, blank=True, help_text="The job whose end it waits for.")
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("run_id", "position")
        indexes = (
            models.Index(
                name="django_jobs_step_event",
                fields=("tenant", "event", "match"),
                condition=Q(status="waiting", event__isnull=False),
            ),
            models.Index(
                name="django_jobs_step_child",
                fields=("child",),
                condition=Q(status="waiting", child__isnull=False),
            ),
            models.Index(
                name="django_jobs_step_answered", fields=("job_id",), condition=Q(status="answered")
            ),
        )

    def __str__(self) -> str:
        return f"step {self.name} of {self.job_id}: {self.status}"
