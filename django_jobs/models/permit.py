"""Slots of a concurrency limit."""

from __future__ import annotations

from django.db import models


class Permit(models.Model):
    """One slot of one limit's key, held by a worker for a job until the body has really ended."""

    key = models.CharField(max_length=512)
    slot = models.IntegerField()
    worker = models.CharField(max_length=200)
    job_id = models.UUIDField()
    expires_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(name="django_jobs_permit_slot", fields=("key", "slot")),
        )
        indexes = (models.Index(name="django_jobs_permit_expiry", fields=("expires_at",)),)

    def __str__(self) -> str:
        return f"{self.key} #{self.slot}"
