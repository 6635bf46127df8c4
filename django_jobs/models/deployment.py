"""Which installation this is: several may share a server that carries signals."""

from __future__ import annotations

import uuid

from django.db import models


class Deployment(models.Model):
    """The one row that names this installation. ``migrate`` writes it."""

    id = models.SmallIntegerField(primary_key=True, default=1, db_default=1)
    key = models.UUIDField(default=uuid.uuid4)

    class Meta:
        constraints = (
            models.CheckConstraint(name="django_jobs_one_deployment", condition=models.Q(id=1)),
        )

    def __str__(self) -> str:
        return self.key.hex


def deployment_key(alias: str) -> str:
    """The name of the installation whose jobs are in ``alias``: 32 hexadecimal digits.

    Where the row is missing (a flushed database, tables that no migration made) it is written
    now; of two processes that do so at once both get the one row.
    """
    row, _ = Deployment.objects.using(alias).get_or_create(id=1)
    return row.key.hex
