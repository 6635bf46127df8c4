"""The tables and every statement on them."""

from django_jobs.models.attempt import Attempt
from django_jobs.models.backfill import Advance, Backfill, BackfillRange, SkippedRow
from django_jobs.models.decision import ScheduleDecision
from django_jobs.models.deployment import Deployment
from django_jobs.models.event import Event, EventQuerySet, Waits
from django_jobs.models.job import Job, JobQuerySet
from django_jobs.models.lane import Counter, Lane, LaneKey
from django_jobs.models.moves import NO_FLOOR, Floor
from django_jobs.models.outbox import Outbox, OutboxQuerySet
from django_jobs.models.own_rows import Fence, OwnRows
from django_jobs.models.permit import Permit
from django_jobs.models.rescue import Lapsed
from django_jobs.models.run import Run
from django_jobs.models.schedule import Schedule
from django_jobs.models.step import Step

__all__ = [
    "NO_FLOOR",
    "Advance",
    "Attempt",
    "Backfill",
    "BackfillRange",
    "Counter",
    "Deployment",
    "Event",
    "EventQuerySet",
    "Fence",
    "Floor",
    "Job",
    "JobQuerySet",
    "Lane",
    "LaneKey",
    "Lapsed",
    "Outbox",
    "OutboxQuerySet",
    "OwnRows",
    "Permit",
    "Run",
    "Schedule",
    "ScheduleDecision",
    "SkippedRow",
    "Step",
    "Waits",
]
