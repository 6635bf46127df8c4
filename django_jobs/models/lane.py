"""The head of a supersede lane; it outlives the lane's jobs."""

from __future__ import annotations

from typing import NamedTuple

from django.db import models


class LaneKey(NamedTuple):
    """Which lane: lanes of two jobs or of two tenants never meet."""

    name: str
    tenant: str
    lane: str


class Lane(models.Model):
    """What was published last in one (name, tenant, lane)."""

    name = models.CharField(max_length=200)
    tenant = models.CharField(max_length=200, db_default="", blank=True)
    lane = models.CharField(max_length=512)
    last_token = models.BigIntegerField(db_default=0)
    last_job = models.UUIDField(null=True, blank=True)
    last_done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(name="django_jobs_lane_key", fields=("name", "tenant", "lane")),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.tenant} {self.lane}"
