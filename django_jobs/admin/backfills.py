"""Passes of backfills in the admin: how far they are, and the orders they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs.admin.reading import TenantAdmin
from django_jobs.admin.showing import EMPTY, column, moment, prose, span, visible
from django_jobs.errors import JobsError, UnknownValue
from django_jobs.operations.backfilling import (
    cancel_backfill,
    pause_backfill,
    rerate_backfill,
    resume_backfill,
)
from django_jobs.operations.reporting import seconds_left, share, shown_state

REFRESH = 5
"""Seconds after which the page of a running pass is loaded again."""
SKIPS = 50
"""Skipped rows that a pass's page shows."""


class RateForm(forms.Form):
    """Another speed limit; empty: none."""

    rate = forms.FloatField(required=False, label="At most")
    rate_per = forms.ChoiceField(
        choices=[("pages", "pages a second"), ("rows", "rows a second")], label=""
    )


class BackfillAdmin(TenantAdmin):
    """The list of passes, and the page of each, which is live while the pass runs."""

    ordering = ("-id",)
    list_display = ("badge", "c_name", "c_tenant", "bar", "rows", "pace", "left", "beat", "c_note")
    list_display_links = ("badge", "c_name")
    list_filter = ("state",)
    search_fields = ("name",)
    search_help_text = "The beginning of a name, or the id of a pass"
    change_form_template = "admin/django_jobs/backfill.html"

    c_name, c_tenant, c_note = column("name"), column("tenant"), column("note")
    d_name, d_tenant, d_note = (column(f, prose) for f in ("name", "tenant", "note"))
    d_error, d_reason = column("error", prose), column("reason", prose)
    d_by = column("ordered_by", prose)
    d_created, d_started = column("created_at", moment), column("started_at", moment)
    d_finished = column("finished_at", moment)

    fieldsets = (
        (None, {"fields": ("badge", "d_name", "d_tenant", "id", "d_note", "d_error")}),
        ("Progress", {"fields": ("bar", "rows", "pages", "skipped", "pace", "left", "beat")}),
        ("Finish line", {"fields": ("expected", "remaining", "sweeps")}),
        ("Orders", {"fields": ("d_by", "d_reason", "job")}),
        ("Code", {"fields": ("checksum", "release")}),
        ("Times", {"fields": ("d_created", "d_started", "d_finished")}),
    )
    readonly_fields = flatten_fieldsets(fieldsets)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The passes that this request may see, with their progress and the clock."""
        rows: Any = super().get_queryset(request)
        found: QuerySet[Any] = rows.with_progress().annotate(clock=Now())
        return found

    def with_text(self, term: str) -> Q:
        """Beginnings of names."""
        return Q(name__startswith=term)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether this user may give orders."""
        return request.user.has_perm("django_jobs.operate_backfill")

    @admin.display(description="state")
    def badge(self, row: Any) -> SafeString:
        """The state in words and colour; *stale*, and states of other releases, marked."""
        try:
            state = shown_state(row)
        except UnknownValue:
            return format_html(
                '<span class="dj-state dj-unknown">{}?</span> unknown to this release',
                visible(row.state),
            )
        return format_html('<span class="dj-state dj-{}">{}</span>', state, state)

    @admin.display(description="progress")
    def bar(self, row: Any) -> SafeString | str:
        """The share of the expected rows: an estimate, so never quite all while it runs."""
        part = share(row)
        if part is None:
            return EMPTY
        text = f"{part:.0%}"
        return format_html('<progress max="100" value="{}">{}</progress> {}', text[:-1], text, text)

    @admin.display(description="rows")
    def rows(self, row: Any) -> str:
        """Rows handled."""
        return f"{row.rows:,}"

    @admin.display(description="pages")
    def pages(self, row: Any) -> str:
        """Pages committed."""
        return f"{row.pages:,}"

    @admin.display(description="skipped")
    def skipped(self, row: Any) -> str:
        """Rows passed over."""
        return f"{row.skipped:,}"

    @admin.display(description="rate")
    def pace(self, row: Any) -> str:
        """The speed limit."""
        return "no limit" if row.rate is None else f"{row.rate:g} {visible(row.rate_per)}/s"

    @admin.display(description="time left")
    def left(self, row: Any) -> str:
        """An estimate, by what it has done since its start."""
        seconds = seconds_left(row, row.clock)
        return EMPTY if seconds is None else span(timedelta(seconds=seconds))

    @admin.display(description="last page")
    def beat(self, row: Any) -> str:
        """How long ago its cursor moved."""
        return EMPTY if row.beat_at is None else f"{span(row.clock - row.beat_at)} ago"

    @admin.display(description="job")
    def job(self, row: Any) -> SafeString | str:
        """The job enqueued for it last."""
        return self.link_to_job(row.job_id)

    def get_urls(self) -> list[URLPattern]:
        """The stock URLs, and where a pass takes its orders."""
        view = self.admin_site.admin_view(self.take_order)
        own = path("<uuid:object_id>/order/", view, name="django_jobs_backfill_order")
        return [own, *super().get_urls()]

    def take_order(self, request: HttpRequest, object_id: Any) -> HttpResponse:
        """Carry out one order, which is posted, and go back to the pass."""
        row = self.get_object(request, unquote(str(object_id)))
        may = self.has_operate_permission(request) and self.has_view_permission(request)
        if request.method != "POST" or not may or row is None:
            raise PermissionDenied
        name = request.POST.get("order", "")
        try:
            self._carry_out(name, row, request)
        except (JobsError, forms.ValidationError) as error:
            self.message_user(request, visible(str(error)), messages.WARNING)
        else:
            self.log_change(request, row, f"Order: {name}.")
        return HttpResponseRedirect(self._url("change", row))

    def _carry_out(self, name: str, row: Any, request: HttpRequest) -> None:
        by = request.user.get_username()
        orders: Mapping[str, Callable[..., None]] = {
            "pause": pause_backfill,
            "resume": resume_backfill,
            "cancel": cancel_backfill,
        }
        if name in orders:
            orders[name](row.pk, by=by)
            return
        form = RateForm(request.POST)
        if name != "rate" or not form.is_valid():
            raise forms.ValidationError("Write a number above 0, or nothing for no limit.")
        rerate_backfill(row.pk, form.cleaned_data["rate"], form.cleaned_data["rate_per"])

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """The page of a pass, with what it can be told and the rows that it passed over."""
        row = kwargs["obj"]
        may = self.has_operate_permission(request)
        context["steering"] = _steering(row) if may else ()
        context["rate_form"] = RateForm(initial={"rate": row.rate, "rate_per": row.rate_per})
        context["refresh"] = REFRESH if row.state == "running" and row.live else None
        skips = row.skips.order_by("pk")[:SKIPS]
        context["skips"] = [(visible(one.key), visible(one.error)) for one in skips]
        return super().render_change_form(request, context, *args, **kwargs)


_ORDERS: dict[str, tuple[str, ...]] = {
    "running": ("pause", "cancel", "rate"),
    "paused": ("resume", "cancel", "rate"),
    "stale": ("resume", "cancel"),
    "failed": ("resume", "cancel"),
}


def _steering(row: Any) -> tuple[str, ...]:
    try:
        return _ORDERS.get(shown_state(row), ())
    except UnknownValue:
        return ()
