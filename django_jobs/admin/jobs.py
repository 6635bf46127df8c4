"""Jobs in the admin."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast, Left, Now
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs.admin.listing import NameFilter, QueueFilter, StateFilter
from django_jobs.admin.operator import OperatorAdmin
from django_jobs.admin.orders import CANCEL, RETRY, VERBS, Verb
from django_jobs.admin.showing import (
    PARSE_LIMIT,
    TEXT_LIMIT,
    cell,
    column,
    cut,
    document,
    moment,
    prose,
    span,
    visible,
)
from django_jobs.admin.steps import STEPS, parents_of, steps_of
from django_jobs.errors import UnknownValue
from django_jobs.failures import redact
from django_jobs.models import Attempt, Job, picking
from django_jobs.models.publishing import outbox
from django_jobs.operations import outbox_aliases
from django_jobs.states import FINISHED, LIVE, REQUEUED_UNASKED, State

ATTEMPTS = 20
"""The latest attempts that a job's page shows."""
TRACEBACK_LIMIT = 2 * TEXT_LIMIT
_DOCUMENTS = ("payload", "result", "progress")


class JobAdmin(OperatorAdmin):
    """The list of jobs and the page of each."""

    ordering = ("-id",)  # The primary key: unique, indexed, and roughly the order of creation.
    list_display = ("badge", "c_name", "c_queue", "c_tenant", "tries", "c_due", "age", "c_key")
    list_display_links = ("badge", "c_name")
    list_filter = (StateFilter, QueueFilter, NameFilter)
    search_fields = ("id",)
    search_help_text = "An id, the beginning of an idempotency key, or by:NAME of who enqueued it"
    obeying: ClassVar[dict[str, Q]] = {
        "cancel": Q(state__in=[state.value for state in LIVE]),
        "retry": Q(state__in=[state.value for state in REQUEUED_UNASKED]),
    }

    c_name, c_queue, c_tenant = column("name"), column("queue"), column("tenant")
    c_key = column("idempotency_key", description="key")
    c_due = column("run_at", moment, "due")

    d_name, d_queue, d_tenant = (column(f, prose) for f in ("name", "queue", "tenant"))
    d_key = column("idempotency_key", prose)
    d_lane, d_limit = column("lane", prose), column("concurrency_key", prose)
    d_worker, d_cancelled_by = column("worker", prose), column("cancelled_by", prose)
    d_retried_by, d_retry_reason = column("retried_by", prose), column("retry_reason", prose)
    d_reason, d_enqueued_by = column("reason", prose), column("enqueued_by", prose)
    d_release, d_traceparent = column("release", prose), column("traceparent", prose)
    d_created, d_due = column("created_at", moment), column("run_at", moment, "due (run at)")
    d_not_before, d_started = column("not_before", moment), column("started_at", moment)
    d_finished, d_expires = column("finished_at", moment), column("lease_expires_at", moment)

    fieldsets = (
        (None, {"fields": ("badge", "d_name", "d_queue", "d_tenant", "id", "d_key")}),
        (
            "Outcome",
            {
                "fields": (
                    *("d_reason", "d_cancelled_by", "d_retried_by", "d_retry_reason"),
                    *("superseded", "d_result", "d_progress"),
                )
            },
        ),
        ("Arguments", {"fields": ("d_payload",)}),
        (
            "Times",
            {"fields": ("age", "d_created", "d_due", "d_not_before", "d_started", "d_finished")},
        ),
        (
            "Run",
            {"fields": ("tries", "crashes", "timeout", "d_worker", "lease", "d_expires", "run_id")},
        ),
        (
            "Order and limits",
            {"fields": ("priority", "blocked", "d_lane", "lane_token", "d_limit")},
        ),
        ("Origin", {"fields": ("d_enqueued_by", "d_release", "d_traceparent")}),
    )
    readonly_fields = flatten_fieldsets(fieldsets)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The jobs that this request may see, without their documents, with the clock."""
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.defer(*_DOCUMENTS).annotate(clock=Now())
        return rows

    def with_id(self, wanted: UUID) -> Q:
        """The job, or the one that stands for an enqueue with this id."""
        return Q(id__in=[wanted, *self._standing_for(wanted)])

    def with_text(self, term: str) -> Q:
        """Beginnings of keys, or with ``by:`` exactly who enqueued it."""
        caller = term.removeprefix("by:")
        if caller != term:
            return Q(enqueued_by=caller) | super().with_text(term)
        # The conditions of two partial indexes, in their own words.
        past, live = ([picking.constant(s) for s in states] for states in (FINISHED, LIVE))
        key = super().with_text(term)
        return (Q(state__in=past) & key) | (Q(state__in=live) & key)

    def _standing_for(self, entry_id: UUID) -> list[UUID]:
        """The job onto which an enqueue with this id was deduplicated."""
        for alias in outbox_aliases():
            found = outbox(alias).filter(id=entry_id).values_list("job_id", flat=True)
            standing = [job_id for job_id in found if job_id is not None]
            if standing:
                return standing
        return []

    @admin.display(description="state")
    def badge(self, job: Job) -> SafeString:
        """The state in words and colour; *stopping*, and states of other releases, marked."""
        try:
            state = job.known_state.value
        except UnknownValue:
            return format_html(
                '<span class="dj-state dj-unknown">{}?</span> unknown to this release',
                visible(job.state),
            )
        if _is_stopping(job):
            return format_html('<span class="dj-state dj-stopping">{}</span>', "stopping")
        return format_html('<span class="dj-state dj-{}">{}</span>', state, state)

    @admin.display(description="attempt")
    def tries(self, job: Job) -> str:
        """Which attempt of how many."""
        return f"{job.attempt} / {job.max_attempts}"

    @admin.display(description="age")
    def age(self, job: Job) -> str:
        """Time since it fell due, by the database's clock."""
        return span(_clock(job) - job.run_at)

    @admin.display(description="superseded by")
    def superseded(self, job: Job) -> SafeString | str:
        """The newer job of its lane."""
        return self.link_to_job(job.superseded_by)

    @admin.display(description="payload")
    def d_payload(self, job: Job) -> SafeString | str:
        """The arguments."""
        return document(_documents(job)["payload"])

    @admin.display(description="result")
    def d_result(self, job: Job) -> SafeString | str:
        """What the body returned."""
        return document(_documents(job)["result"])

    @admin.display(description="progress")
    def d_progress(self, job: Job) -> SafeString | str:
        """What the body reported last."""
        return document(_documents(job)["progress"])

    def orders_for(self, row: Job) -> list[Verb]:
        """Cancel while it is live, retry when it has finished, both in an unknown state."""
        if row.state in list(LIVE):
            return [CANCEL]
        if row.state in list(FINISHED):
            return [] if _is_stopping(row) else [RETRY]
        return list(VERBS.values())

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """The page of a job, with its steps, its failed attempts, and who waits for it."""
        job = kwargs["obj"]
        attempts = _attempts(job)
        context["attempts"] = [_shown(attempt) for attempt in attempts[:ATTEMPTS]]
        context["more_attempts"] = len(attempts) > ATTEMPTS
        steps = steps_of(job)
        context["steps"], context["more_steps"] = steps[-STEPS:], len(steps) > STEPS
        context["parents"] = parents_of(job)
        return super().render_change_form(request, context, *args, **kwargs)


def _clock(job: Any) -> datetime:
    clock: datetime = getattr(job, "clock", None) or datetime.now(UTC)
    return clock


def _is_stopping(job: Job) -> bool:
    expires = job.lease_expires_at
    ended = job.state != State.CANCELLED or not job.worker
    return not ended and expires is not None and expires > _clock(job)


def _documents(job: Any) -> dict[str, str | None]:
    """The texts of the JSON columns, read once, none of them longer than can be shown."""
    if not hasattr(job, "_documents"):
        texts = {f"{f}_text": Left(Cast(f, TextField()), PARSE_LIMIT + 1) for f in _DOCUMENTS}
        row = Job.objects.using(job._state.db).filter(pk=job.pk).annotate(**texts)
        read = row.values(*texts).first() or dict.fromkeys(texts)
        job._documents = {f: read[f"{f}_text"] for f in _DOCUMENTS}
    documents: dict[str, str | None] = job._documents
    return documents


def _attempts(job: Job) -> list[Any]:
    """The latest attempts, newest first; one more than is shown, to know whether there are."""
    rows = Attempt.objects.using(job._state.db).filter(job_id=job.pk).order_by("-pk")
    texts = {"head": Left("message", TEXT_LIMIT + 1), "trace": Left("traceback", TRACEBACK_LIMIT)}
    return list(rows.defer("message", "traceback").annotate(**texts)[: ATTEMPTS + 1])


def _shown(attempt: Any) -> dict[str, Any]:
    whole = len(attempt.trace) < TRACEBACK_LIMIT
    return {
        "number": attempt.number,
        "error_class": cell(attempt.error_class),
        "message": redact(visible(cut(attempt.head, TEXT_LIMIT))),
        "traceback": redact(visible(attempt.trace)),
        "is_cut": not whole,
        "worker": visible(attempt.worker),
        "started": moment(attempt.started_at),
        "ended": moment(attempt.ended_at),
    }
