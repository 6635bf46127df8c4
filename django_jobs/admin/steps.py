"""The steps of a job on its page, and the jobs that wait for it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models.functions import Left
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs.admin.showing import cell, moment
from django_jobs.failures import redact
from django_jobs.models import Job, Step, picking

STEPS = 200
"""The latest steps that a job's page shows."""
ERROR_LIMIT = 500
"""Characters of a step's error that are shown."""


def steps_of(job: Job) -> list[dict[str, Any]]:
    """The latest steps of the run, in its order; one more than is shown, if there are more."""
    rows = Step.objects.using(job._state.db).filter(run_id=job.run_id).order_by("-position")
    rows = rows.defer("output", "error").annotate(head=Left("error", ERROR_LIMIT))
    return [_shown(step) for step in reversed(rows[: STEPS + 1])]


def parents_of(job: Job) -> list[SafeString]:
    """Links to the jobs that wait for this one now."""
    # In the words of the index on waits.
    waits = Step.objects.using(job._state.db).filter(
        child=job.pk, status=picking.constant("waiting")
    )
    ids: set[UUID] = set(waits.values_list("job_id", flat=True)[:STEPS])
    return [link(id_) for id_ in sorted(ids)]


def link(job_id: UUID) -> SafeString:
    """A link to a job's page."""
    return format_html(
        '<a href="{}">{}</a>', reverse("admin:django_jobs_job_change", args=[job_id]), job_id
    )


def _shown(step: Any) -> dict[str, Any]:
    return {
        "name": cell(step.name),
        "kind": cell(step.kind),
        "status": cell(step.status),
        "attempts": step.attempts or "",
        "error": cell(redact(f"{step.error_class}: {step.head}")) if step.error_class else "",
        "wakes": moment(step.wake_at) if step.wake_at else "",
        "ended": moment(step.ended_at),
        "child": link(step.child) if step.child else "",
    }
