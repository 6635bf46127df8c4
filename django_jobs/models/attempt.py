"""The history of failed and lost attempts."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Attempt(models.Model):
    """One failed or lost attempt of a job. Successful attempts leave no row.

    ``job_id`` is no foreign key: a key would lock the job's row for every insert here.
    """

    job_id = models.UUIDField(db_index=True)
    number = models.IntegerField()
    error_class = models.CharField(max_length=200)
    message = models.TextField(db_default="", blank=True)
    traceback = models.TextField(db_default="", blank=True)
    worker = models.CharField(max_length=200, db_default="", blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("job_id", "pk")

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.job_id}: {self.error_class}"
