"""Durable background jobs for Django: a job exists exactly if its transaction committed.

>>> from django_jobs import job, enqueue

What needs the models is imported on first use, so that ``import django_jobs`` works before
``django.setup()``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_jobs.backfills import ALL, Backfill, Health, Page, backfill
from django_jobs.current import CurrentJob, current_job
from django_jobs.definitions import PER_CALL, Call, Definition, Enqueued, job
from django_jobs.errors import RetryAfter, Terminal
from django_jobs.retries import Retry

if TYPE_CHECKING:
    from django_jobs.operations import (
        Standing,
        aenqueue,
        cancel,
        enqueue,
        enqueue_many,
        get,
        retry,
    )

__version__ = "0.1.0"

__all__ = [
    "ALL",
    "PER_CALL",
    "Backfill",
    "Call",
    "CurrentJob",
    "Definition",
    "Enqueued",
    "Health",
    "Page",
    "Retry",
    "RetryAfter",
    "Standing",
    "Terminal",
    "aenqueue",
    "backfill",
    "cancel",
    "current_job",
    "enqueue",
    "enqueue_many",
    "get",
    "job",
    "retry",
]


def __getattr__(name: str) -> Any:
    if name in ("Standing", "aenqueue", "cancel", "enqueue", "enqueue_many", "get", "retry"):
        return getattr(import_module("django_jobs.operations"), name)
    raise AttributeError(f"module 'django_jobs' has no attribute {name!r}")
