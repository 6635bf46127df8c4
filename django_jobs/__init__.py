"""Durable background jobs for Django: a job exists exactly if its transaction committed.

>>> from django_jobs import job, enqueue

What needs the models is imported on first use, so that ``import django_jobs`` works before
``django.setup()``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_jobs import steps as step
from django_jobs.backfills import ALL, Backfill, Health, Page, backfill
from django_jobs.current import CurrentJob, current_job
from django_jobs.definitions import PER_CALL, Call, Definition, Enqueued, job
from django_jobs.errors import RetryAfter, Terminal
from django_jobs.retries import Retry
from django_jobs.schedules import schedule

if TYPE_CHECKING:
    from django_jobs.operations import (
        Standing,
        aemit,
        aenqueue,
        cancel,
        emit,
        enqueue,
        enqueue_many,
        get,
        look_ahead,
        pause_schedule,
        resume_schedule,
        retry,
        trigger_schedule,
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
    "aemit",
    "aenqueue",
    "backfill",
    "cancel",
    "current_job",
    "emit",
    "enqueue",
    "enqueue_many",
    "get",
    "job",
    "look_ahead",
    "pause_schedule",
    "resume_schedule",
    "retry",
    "schedule",
    "step",
    "trigger_schedule",
]

_OPERATIONS = {
    *("Standing", "aemit", "aenqueue", "cancel", "emit", "enqueue", "enqueue_many"),
    *("get", "retry"),
    *("look_ahead", "pause_schedule", "resume_schedule", "trigger_schedule"),
}


def __getattr__(name: str) -> Any:
    if name in _OPERATIONS:
        return getattr(import_module("django_jobs.operations"), name)
    raise AttributeError(f"module 'django_jobs' has no attribute {name!r}")
