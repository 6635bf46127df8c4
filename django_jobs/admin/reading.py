"""Rows that can only be looked at: the package writes them itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs.admin.listing import CountedPaginator
from django_jobs.admin.orders import ROW_LIMIT
from django_jobs.admin.showing import EMPTY, visible

if TYPE_CHECKING:
    BaseAdmin = admin.ModelAdmin[Any]
else:
    BaseAdmin = admin.ModelAdmin


class ReadingAdmin(BaseAdmin):
    """A list and a page of each row. Nothing can be added, changed or deleted."""

    paginator = CountedPaginator
    show_full_result_count = False
    sortable_by = ()

    class Media:
        css: ClassVar[dict[str, tuple[str, ...]]] = {"all": ("django_jobs/admin.css",)}

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody may."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody may."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody may."""
        return False

    def link_to_job(self, job_id: UUID | None) -> SafeString | str:
        """The job's page, if there is such a job."""
        if job_id is None:
            return EMPTY
        page = f"admin:{self.opts.app_label}_job_change"
        url = reverse(page, args=[job_id], current_app=self.admin_site.name)
        return format_html('<a href="{}">{}</a>', url, job_id)

    def _url(self, page: str, row: Any) -> str:
        info = self.opts.app_label, self.opts.model_name
        name = "admin:{}_{}_{}".format(*info, page)
        return reverse(name, args=[quote(self.key_of(row))], current_app=self.admin_site.name)

    def key_of(self, row: Any) -> Any:
        """What names ``row`` in URLs."""
        return row.pk


class TenantAdmin(ReadingAdmin):
    """Rows that belong to tenants, in tables of any length."""

    show_facets = admin.ShowFacets.NEVER  # Each facet counts the whole table.
    list_per_page = 100
    list_max_show_all = 0
    change_form_template = "admin/django_jobs/change_form.html"
    change_list_template = "admin/django_jobs/change_list.html"

    def tenant_of(self, request: HttpRequest) -> str | None:
        """The only tenant whose rows this request may see and order; ``None``: all.

        Override it in a subclass that is registered in this one's place.
        """
        return None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows that this request may see."""
        rows = super().get_queryset(request)
        tenant = self.tenant_of(request)
        return rows if tenant is None else rows.filter(tenant=tenant)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By id or by text; nothing that reads long texts."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            wanted = UUID(term)
        except ValueError:
            return queryset.filter(self.with_text(term)), False
        return queryset.filter(self.with_id(wanted)), False

    def with_id(self, wanted: UUID) -> Q:
        """The rows that a search for an id finds."""
        return Q(id=wanted)

    def with_text(self, term: str) -> Q:
        """The rows that a search for a text finds: by the beginnings of their keys."""
        return Q(idempotency_key__startswith=term)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """The page of one row."""
        context["subtitle"] = visible(str(kwargs.get("obj")))
        return super().render_change_form(request, context, *args, **kwargs)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, and a way to what lies beyond its last page."""
        response = super().changelist_view(request, extra_context)
        context = getattr(response, "context_data", None) or {}
        changes = context.get("cl")
        if changes is not None and changes.result_count > ROW_LIMIT:
            context["counted"] = ROW_LIMIT
            shown = list(changes.result_list)
            if shown and changes.page_num == changes.paginator.num_pages:
                beyond = {f"{self.opts.pk.attname}__lt": shown[-1].pk}
                context["older"] = changes.get_query_string(beyond, ["p"])
        return response
