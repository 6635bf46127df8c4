"""Schedules in the admin: how each stands, what was decided, and pause, resume, trigger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from django_jobs import conf
from django_jobs.admin.orders import ReasonForm
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import EMPTY, cell, column, moment, prose, visible
from django_jobs.errors import JobsError
from django_jobs.models import Schedule
from django_jobs.models.decision import decisions
from django_jobs.operations.scheduling import (
    condition,
    look_ahead,
    pause_schedule,
    resume_schedule,
    trigger_schedule,
)
from django_jobs.schedules import timetable

DECISIONS = 50
"""The latest decisions that a schedule's page shows."""
AHEAD = 5


@dataclass(frozen=True)
class Order:
    """One order to a schedule: how it reads, who may give it, and what it does."""

    name: str
    title: str
    past: str
    warning: str
    permission: str
    give: Callable[[str, str, str], object]


ORDERS = {
    order.name: order
    for order in (
        Order(
            "pause",
            "Pause",
            "is paused",
            "Its occurrences are skipped until it is resumed. What it has enqueued goes on.",
            "django_jobs.pause_schedule",
            lambda name, by, reason: pause_schedule(name, by=by, reason=reason),
        ),
        Order(
            "resume",
            "Resume",
            "runs again",
            "Its next occurrence runs. What was skipped meanwhile is not made good.",
            "django_jobs.pause_schedule",
            lambda name, by, reason: resume_schedule(name),
        ),
        Order(
            "trigger",
            "Trigger now",
            "was triggered",
            "Its job is enqueued now, whatever else of it runs. Its next occurrence stays.",
            "django_jobs.trigger_schedule",
            lambda name, by, reason: trigger_schedule(name, by=by, reason=reason),
        ),
    )
}


class ScheduleAdmin(ReadingAdmin):
    """The list of schedules and the page of each."""

    ordering = ("name",)
    actions = None
    list_display = ("badge", "c_name", "c_cadence", "c_watermark", "next_one", "c_error")
    list_display_links = ("badge", "c_name")
    search_fields = ("name", "job")
    change_form_template = "admin/django_jobs/schedule.html"

    c_name, c_cadence, c_error = column("name"), column("cadence"), column("error")
    c_watermark = column("watermark", moment, "decided up to")

    d_name, d_job = column("name", prose), column("job", prose)
    d_cadence, d_zone = column("cadence", prose), column("zone", prose)
    d_previous = column("previous", prose)
    d_missed, d_overlap = column("missed", prose), column("overlap", prose)
    d_paused_by, d_pause_reason = column("paused_by", prose), column("pause_reason", prose)
    d_error, d_release = column("error", prose), column("release", prose)
    d_watermark = column("watermark", moment, "decided up to")
    d_wake, d_paused = column("wake_at", moment, "looked at next"), column("paused_at", moment)
    d_failed, d_seen = column("failed_at", moment), column("seen_at", moment)
    d_created = column("created_at", moment)

    fieldsets = (
        (None, {"fields": ("badge", "d_name", "d_job", "d_cadence", "d_zone", "ahead")}),
        ("Policies", {"fields": ("d_missed", "d_overlap", "jitter", "per_tenant")}),
        ("Pause", {"fields": ("d_paused", "d_paused_by", "d_pause_reason")}),
        ("Error", {"fields": ("d_error", "failures", "d_failed")}),
        ("Times", {"fields": ("d_watermark", "d_wake", "d_seen", "d_created")}),
        ("Declaration", {"fields": ("d_release", "d_previous", "version")}),
    )
    readonly_fields = flatten_fieldsets(fieldsets)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """All schedules, in the jobs' own database, with its clock."""
        rows = super().get_queryset(request).using(conf.current().database)
        clocked: QuerySet[Any] = rows.annotate(clock=Now())
        return clocked

    @admin.display(description="state")
    def badge(self, row: Any) -> SafeString:
        """How it stands, in words and colour."""
        stands = condition(row)
        colours = {"active": "done", "paused": "suspended", "failing": "dead"}
        colour = colours.get(stands, "cancelled")
        return format_html('<span class="dj-state dj-{}">{}</span>', colour, stands)

    @admin.display(description="next")
    def next_one(self, row: Any) -> SafeString | str:
        """Its next occurrence, in the viewer's zone as everything in the list."""
        declared = timetable(row.name)
        return EMPTY if declared is None else moment(declared.cadence.after(row.clock))

    @admin.display(description="next occurrences")
    def ahead(self, row: Any) -> SafeString | str:
        """Its next occurrences, in its own zone."""
        if timetable(row.name) is None:
            return EMPTY
        times = look_ahead(row.name, AHEAD)
        return format_html_join(
            "", "<div>{}</div>", ((f"{at:%Y-%m-%d %H:%M:%S %z}",) for at in times)
        )

    def get_urls(self) -> list[URLPattern]:
        """The stock URLs, and one page for each order."""
        return [
            path(
                f"<path:object_id>/{name}/",
                self.admin_site.admin_view(self.order_view),
                {"name": name},
                name=f"django_jobs_schedule_{name}",
            )
            for name in ORDERS
        ] + super().get_urls()

    def order_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Ask for a reason, then give the order."""
        order = ORDERS[name]
        if not request.user.has_perm(order.permission) or not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return self._get_obj_does_not_exist_redirect(  # type: ignore[attr-defined,no-any-return]
                request, self.opts, object_id
            )
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            self._give(request, order, row, form.cleaned_data["reason"])
            return HttpResponseRedirect(self._url("change", row))
        context = {
            **self.admin_site.each_context(request),
            "title": order.title,
            "verb": order,
            "name": visible(row.name),
            "form": form,
            "back": self._url("change", row),
            "opts": self.opts,
            "media": self.media,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_jobs/confirm_schedule.html", context)

    def _give(self, request: HttpRequest, order: Order, row: Any, reason: str) -> None:
        try:
            given = order.give(row.name, request.user.get_username(), reason)
        except JobsError as error:
            self.message_user(request, visible(str(error)), messages.ERROR)
            return
        if not given:
            self.message_user(request, "Nothing to do: it is so already.", messages.WARNING)
            return
        user: Any = request.user.pk
        shown: Any = [Schedule(name=row.name)]
        LogEntry.objects.log_actions(user, shown, CHANGE, f"{order.title}. {visible(reason)}")
        self.message_user(request, f"{visible(row.name)} {order.past}.", messages.SUCCESS)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """The page of a schedule, with its decisions and the orders that this user may give."""
        row: Any = kwargs["obj"]
        hidden = "pause" if row.paused_at is not None else "resume"
        context["subtitle"] = visible(row.name)
        context["orders"] = [
            {"title": order.title, "name": order.name, "url": self._url(order.name, row)}
            for order in ORDERS.values()
            if order.name != hidden and request.user.has_perm(order.permission)
        ]
        context["decisions"] = [self._decision(one) for one in _latest(row)]
        return super().render_change_form(request, context, *args, **kwargs)

    def _decision(self, one: Any) -> dict[str, Any]:
        return {
            "outcome": visible(one.outcome),
            "occurrence": moment(one.occurrence),
            "count": one.occurrences,
            "tenant": cell(one.tenant),
            "reason": prose(one.reason),
            "job": self.link_to_job(one.job_id),
            "decided": moment(one.decided_at),
        }


def _latest(row: Any) -> list[Any]:
    made = decisions(conf.current().database).filter(schedule=row.name)
    return list(made.order_by("-id")[:DECISIONS])
