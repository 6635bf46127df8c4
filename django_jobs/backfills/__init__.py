"""Backfills as they are declared: ``@backfill``, the list of all of them, and pages by key."""

from __future__ import annotations

from django_jobs.backfills.declared import (
    ALL,
    Backfill,
    Health,
    Page,
    backfills,
    bind,
    named,
)
from django_jobs.backfills.declaring import backfill, is_rate
from django_jobs.backfills.keyset import Key, Keyset

__all__ = [
    "ALL",
    "Backfill",
    "Health",
    "Key",
    "Keyset",
    "Page",
    "backfill",
    "backfills",
    "bind",
    "is_rate",
    "named",
]
