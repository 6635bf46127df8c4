"""The outbox in the admin: what was staged and has not become a job yet, and what became of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets, quote
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs import conf
from django_jobs.admin.listing import DatabaseFilter, NameFilter, OutcomeFilter
from django_jobs.admin.operator import OperatorAdmin
from django_jobs.admin.orders import CANCEL, RETRY, Verb
from django_jobs.admin.showing import column, document, moment, prose, visible
from django_jobs.models import Outbox
from django_jobs.models.outbox import OUTCOMES, QUARANTINED
from django_jobs.operations import outbox_aliases


class EntryList(ChangeList):
    """Names entries by their id: ``seq`` repeats from database to database."""

    def url_for_result(self, result: Any) -> str:
        """The page of an entry."""
        opts = self.model._meta
        name = f"admin:{opts.app_label}_{opts.model_name}_change"
        current = self.model_admin.admin_site.name
        return reverse(name, args=(quote(result.id),), current_app=current)


class OutboxAdmin(OperatorAdmin):
    """The list of entries and the page of each, over all outboxes."""

    ordering = ("-seq",)
    list_display = ("badge", "c_name", "c_queue", "c_tenant", "attempts", "c_staged", "c_key")
    list_display_links = ("badge", "c_name")
    list_filter = (OutcomeFilter, NameFilter, DatabaseFilter)
    search_fields = ("id",)
    search_help_text = "An id, or the beginning of an idempotency key"

    c_name, c_queue, c_tenant = column("name"), column("queue"), column("tenant")
    c_key, c_staged = column("idempotency_key", description="key"), column("staged_at", moment)

    d_name, d_queue, d_tenant = (column(f, prose) for f in ("name", "queue", "tenant"))
    d_key, d_lane = column("idempotency_key", prose), column("lane", prose)
    d_on_conflict, d_error = column("on_conflict", prose), column("last_error", prose)
    d_enqueued_by, d_release = column("enqueued_by", prose), column("release", prose)
    d_traceparent, d_payload = column("traceparent", prose), column("payload", document)
    d_staged, d_due = column("staged_at", moment), column("run_at", moment, "due (run at)")
    d_next_try, d_published = column("next_try_at", moment), column("published_at", moment)
    d_cancelled_by, d_retried_by = column("cancelled_by", prose), column("retried_by", prose)
    d_retry_reason = column("retry_reason", prose)
    d_claimed_until = column("claimed_until", moment)

    fieldsets = (
        (
            None,
            {"fields": ("badge", "d_name", "d_queue", "d_tenant", "id", "d_key", "job", "d_error")},
        ),
        ("Orders", {"fields": ("d_cancelled_by", "d_retried_by", "d_retry_reason")}),
        ("Arguments", {"fields": ("d_payload",)}),
        ("Times", {"fields": ("d_staged", "d_due", "d_next_try", "d_published")}),
        ("Publishing", {"fields": ("seq", "batch", "attempts", "claimed_by", "d_claimed_until")}),
        (
            "The job to be",
            {"fields": ("priority", "max_attempts", "timeout", "d_on_conflict", "d_lane")},
        ),
        ("Origin", {"fields": ("d_enqueued_by", "d_release", "d_traceparent")}),
    )
    readonly_fields = flatten_fieldsets(fieldsets)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The entries that this request may see; of the jobs' database unless it is filtered."""
        return super().get_queryset(request).using(conf.current().database)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The list whose links name entries by id."""
        return EntryList

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Outbox | None:
        """The entry with this id, in whichever outbox it is."""
        try:
            wanted = UUID(object_id)
        except ValueError:
            return None
        for alias in outbox_aliases():
            for entry in self.get_queryset(request).using(alias).filter(id=wanted):
                found: Outbox = entry
                return found
        return None

    def key_of(self, row: Outbox) -> Any:
        """The entry's id, which is the job's."""
        return row.id

    def with_id(self, wanted: UUID) -> Q:
        """The entry, and those that this job stands for."""
        return Q(id=wanted) | Q(job_id=wanted)

    @admin.display(description="outcome")
    def badge(self, entry: Outbox) -> SafeString:
        """What became of it, ``waiting`` if nothing has yet."""
        outcome = entry.outcome or "waiting"
        if outcome not in ("waiting", *OUTCOMES):
            return format_html(
                '<span class="dj-state dj-unknown">{}?</span> unknown to this release',
                visible(outcome),
            )
        return format_html(
            '<span class="dj-state dj-{}">{}</span>', outcome, outcome.replace("_", " ")
        )

    @admin.display(description="job")
    def job(self, entry: Outbox) -> SafeString | str:
        """The job that stands for it."""
        return self.link_to_job(entry.job_id)

    def orders_for(self, row: Outbox) -> list[Verb]:
        """Cancel while it waits, cancel and retry when it is quarantined."""
        if row.outcome == QUARANTINED:
            return [CANCEL, RETRY]
        return [CANCEL] if row.outcome is None else []
