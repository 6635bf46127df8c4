"""What job bodies write, so that tests can see what ran, where and how often."""

import uuid

from django.db import models


class Ledger(models.Model):
    """One line per run of a body."""

    job_key = models.TextField(default="")
    attempt = models.IntegerField(default=0)
    pid = models.IntegerField(default=0)
    note = models.TextField(default="")
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.job_key} #{self.attempt} in {self.pid}: {self.note}"


class Account(models.Model):
    """A business row for jobs to change."""

    name = models.TextField(unique=True)
    balance = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}: {self.balance}"


class Item(models.Model):
    """A row for backfills to change."""

    name = models.TextField(default="")
    tenant = models.TextField(default="", blank=True)
    rank = models.IntegerField(default=0)
    at = models.DateTimeField(null=True, blank=True)
    token = models.UUIDField(default=uuid.uuid4)
    changes = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}: {self.changes}"
