"""Run a body with steps, attempt after attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django_jobs import Enqueued, enqueue, get
from django_jobs.models import Job, Step
from django_jobs.testing import Ran, advance, drain
from tests.app import tasks
from tests.app.tasks import effects


def begin(body: Callable[[], Any], definition: Any = tasks.stepping, *arguments: Any) -> Enqueued:
    """Enqueue a job with this body."""
    tasks.body = body
    return enqueue(definition, *arguments)


def run(body: Callable[[], Any]) -> tuple[Enqueued, list[Ran]]:
    """One job with this body, run until nothing is due."""
    begun = begin(body)
    return begun, drain()


def again(body: Callable[[], Any] | None = None, seconds: float = 10.0) -> list[Ran]:
    """The next attempt, after ``seconds``; with ``body`` instead of the earlier one."""
    if body is not None:
        tasks.body = body
    advance(seconds)
    return drain()


def state(job: Enqueued) -> str:
    return get(job.id).state


def steps(job: Enqueued | UUID) -> dict[str, str]:
    """Every stored step of a job with its status, in the order the run met them."""
    id_ = job if isinstance(job, UUID) else job.id
    alias = Job.objects.all().db
    rows = Step.objects.using(alias).filter(job_id=id_).order_by("position")
    return dict(rows.values_list("name", "status"))


def stored(job: Enqueued, name: str) -> Step:
    return Step.objects.using(Job.objects.all().db).get(job_id=job.id, name=name)


__all__ = ["again", "begin", "effects", "run", "state", "steps", "stored"]
