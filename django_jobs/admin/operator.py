"""What the admin of jobs and of outbox entries shares: looking, and giving orders."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join

from django_jobs.admin.orders import CANCEL, RETRY, ROW_LIMIT, VERBS, Report, Verb, carry_out
from django_jobs.admin.reading import TenantAdmin
from django_jobs.admin.showing import cell, visible
from django_jobs.models import Job

GROUPS = 50
"""Lines of the table that says what an order would reach."""


class OperatorAdmin(TenantAdmin):
    """Rows to look at, and the orders cancel and retry for those who may give them."""

    actions = ("cancel_selected", "retry_selected")
    obeying: ClassVar[dict[str, Q]] = {}
    """Which rows will take an order, by its name, where that can be told from the row."""

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether this user may cancel."""
        return request.user.has_perm("django_jobs.cancel_job")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Whether this user may retry."""
        return request.user.has_perm("django_jobs.retry_job")

    def get_urls(self) -> list[URLPattern]:
        """The stock URLs, and one page for each order to a single row."""
        info = self.opts.app_label, self.opts.model_name
        return [
            path(
                f"<path:object_id>/{name}/",
                self.admin_site.admin_view(self.order_view),
                {"name": name},
                name="{}_{}_{}".format(*info, name),
            )
            for name in VERBS
        ] + super().get_urls()

    @admin.action(permissions=["cancel"], description="Cancel selected jobs")
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        """Ask for a reason, then cancel."""
        return self._order_many(request, CANCEL, queryset)

    @admin.action(permissions=["retry"], description="Retry selected jobs")
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        """Ask back, then retry."""
        return self._order_many(request, RETRY, queryset)

    def _order_many(self, request: HttpRequest, verb: Verb, rows: QuerySet[Any]) -> HttpResponse:
        chosen = helpers.ACTION_CHECKBOX_NAME
        hidden = [("action", f"{verb.name}_selected")]
        hidden.append(("select_across", request.POST.get("select_across", "0")))
        hidden += [(chosen, value) for value in request.POST.getlist(chosen)]
        return self._order(request, verb, rows, request.get_full_path(), hidden)

    def order_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """The page on which one row is cancelled or retried."""
        verb = VERBS[name]
        may: bool = getattr(self, f"has_{name}_permission")(request)
        if not may or not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return self._get_obj_does_not_exist_redirect(  # type: ignore[attr-defined,no-any-return]
                request, self.opts, object_id
            )
        rows = self.get_queryset(request).using(row._state.db).filter(pk=row.pk)
        return self._order(request, verb, rows, self._url("change", row), [])

    def _order(
        self,
        request: HttpRequest,
        verb: Verb,
        rows: QuerySet[Any],
        back: str,
        hidden: list[tuple[str, str]],
    ) -> HttpResponse:
        confirmed = request.method == "POST" and "confirmed" in request.POST
        form = verb.form(request.POST if confirmed else None)
        if confirmed and form.is_valid():
            by = request.user.get_username()
            report = carry_out(verb, rows, self.tenant_of(request), by, form.cleaned_data)
            self._log(request, verb, report, form.cleaned_data)
            self._tell(request, verb, report)
            return HttpResponseRedirect(back)
        context = {
            **self.admin_site.each_context(request),
            **self._reach(verb, rows),
            "title": verb.title,
            "verb": verb,
            "form": form,
            "hidden": hidden,
            "back": back,
            "opts": self.opts,
            "media": self.media,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_jobs/confirm_order.html", context)

    def _reach(self, verb: Verb, rows: QuerySet[Any]) -> dict[str, Any]:
        """What the order would reach, by name and tenant; as many rows as it reaches at once."""
        reached = rows.order_by("pk").values("pk")[:ROW_LIMIT]
        same = self.model._base_manager.using(rows.db).filter(pk__in=reached)
        obeying = self.obeying.get(verb.name)
        groups = list(
            same.values("name", "tenant")
            .order_by("name", "tenant")
            .annotate(jobs=Count("pk"), able=Count("pk", filter=obeying or Q()))
        )
        return {
            "groups": [
                {**g, "name": cell(g["name"]), "tenant": cell(g["tenant"])} for g in groups[:GROUPS]
            ],
            "more_groups": max(0, len(groups) - GROUPS),
            "total": sum(group["jobs"] for group in groups),
            "able": sum(group["able"] for group in groups) if obeying else None,
            "row_limit": ROW_LIMIT,
        }

    def _log(
        self, request: HttpRequest, verb: Verb, report: Report, answers: dict[str, Any]
    ) -> None:
        """Who ordered what, in the admin's own history of each job."""
        said = "".join(
            f" {name}: {visible(str(value))}" for name, value in answers.items() if value
        )
        jobs: Any = [Job(id=row.id, name=visible(row.name)) for row in report.done]
        if jobs:
            user: Any = request.user.pk
            LogEntry.objects.log_actions(user, jobs, CHANGE, f"{verb.title}.{said}")

    def _tell(self, request: HttpRequest, verb: Verb, report: Report) -> None:
        if report.done:
            count = len(report.done)
            noun = "job was" if count == 1 else "jobs were"
            self.message_user(request, f"{count:,} {noun} {verb.past}.", messages.SUCCESS)
        if report.refused:
            told = format_html_join(
                "",
                '<li class="dj-text">{}: {}</li>',
                ((visible(row.name), visible(why)) for row, why in report.refusals),
            )
            more = report.refused - len(report.refusals)
            message = format_html(
                "{} not {}:<ul>{}</ul>{}",
                f"{report.refused:,} {'was' if report.refused == 1 else 'were'}",
                verb.past,
                told,
                f"… and {more:,} more" if more else "",
            )
            self.message_user(request, message, messages.WARNING)
        if report.left:
            left = "There are more than one order reaches. Select them and order it again."
            self.message_user(request, left, messages.WARNING)

    def orders_for(self, row: Any) -> list[Verb]:
        """The orders that make sense for a row as it is."""
        return list(VERBS.values())

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """The page of one row, with the orders that this user may give it."""
        row = kwargs.get("obj")
        context["orders"] = [
            {"title": verb.title, "name": verb.name, "url": self._url(verb.name, row)}
            for verb in self.orders_for(row)
            if getattr(self, f"has_{verb.name}_permission")(request)
        ]
        return super().render_change_form(request, context, *args, **kwargs)
