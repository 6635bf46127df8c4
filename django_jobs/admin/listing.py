"""Lists of tables that may hold millions of rows: what is counted, and what can be filtered by.

Nothing here asks for all distinct values of a column or counts without a limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from django_jobs.admin.showing import visible
from django_jobs.definitions import registry
from django_jobs.models import Job
from django_jobs.models.outbox import OUTCOMES
from django_jobs.operations import outbox_aliases
from django_jobs.states import State

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    BasePaginator = Paginator[Any]
else:
    BasePaginator = Paginator

COUNT_LIMIT = 10_001
"""A list counts up to here; a result this large means "more than 10,000"."""

QUEUE_LIMIT = 100
"""Queues that are looked up for the filter."""

STOPPING = Q(state=State.CANCELLED, lease_expires_at__gt=Now()) & ~Q(worker="")
"""Cancelled, and its body has not ended yet as far as the row tells."""


class CountedPaginator(BasePaginator):
    """Pages of a list whose count stops at ``COUNT_LIMIT``."""

    @cached_property
    def count(self) -> int:
        """How many rows there are, at most ``COUNT_LIMIT``."""
        rows: Any = self.object_list
        found: int = rows.order_by()[:COUNT_LIMIT].count()
        return found


class ChoiceFilter(admin.SimpleListFilter):
    """A filter on one column by a known list of values."""

    column = ""

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """The values to choose from, with what is shown for each."""
        return [(value, visible(value)) for value in self.values(request)]

    def values(self, request: HttpRequest) -> Iterable[str]:
        """The values to choose from."""
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows that have the chosen value."""
        value = self.value()
        if value is None:
            return queryset
        if "\x00" in value:
            raise IncorrectLookupParameters
        return self.chosen(queryset, value)

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Those of ``rows`` that have ``value``."""
        return rows.filter(**{self.column: value})


class StateFilter(ChoiceFilter):
    """By state, by *stopping*, or by a state that this release does not know."""

    title, parameter_name, column = "state", "state", "state"

    def values(self, request: HttpRequest) -> Iterable[str]:
        """The eight states and two conditions that are no states."""
        return [*(state.value for state in State), "stopping", "unknown"]

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Those of ``rows`` in the state."""
        if value == "stopping":
            return rows.filter(STOPPING)
        if value == "unknown":
            return rows.exclude(state__in=list(State))
        return super().chosen(rows, value)


class OutcomeFilter(ChoiceFilter):
    """By what became of an entry."""

    title, parameter_name, column = "outcome", "became", "outcome"

    def values(self, request: HttpRequest) -> Iterable[str]:
        """The outcomes, and ``waiting`` for entries that have none yet."""
        return ["waiting", *OUTCOMES]

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Those of ``rows`` with the outcome."""
        return rows.filter(outcome=None if value == "waiting" else value)


class NameFilter(ChoiceFilter):
    """By job name: those that this process has declared, and all others together."""

    title, parameter_name, column = "name", "job", "name"
    other = "(unknown to this release)"

    def values(self, request: HttpRequest) -> Iterable[str]:
        """The declared names."""
        return [*registry(), self.other]

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Those of ``rows`` with the name."""
        if value == self.other:
            return rows.exclude(name__in=list(registry()))
        return super().chosen(rows, value)


class QueueFilter(ChoiceFilter):
    """By queue: those of the declared jobs, and those in which something is ready."""

    title, parameter_name, column = "queue", "queue", "queue"

    def values(self, request: HttpRequest) -> Iterable[str]:
        """The queues' names, sorted."""
        declared = {definition.queue for definition in registry().values()}
        return sorted(declared.union(ready_queues()))


class DatabaseFilter(ChoiceFilter):
    """By the database whose transactions stage here. Hidden where there is one outbox only."""

    title, parameter_name = "database", "database"

    def values(self, request: HttpRequest) -> Iterable[str]:
        """The aliases that have an outbox."""
        aliases = outbox_aliases()
        return aliases if len(aliases) > 1 else ()

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The entries in that database."""
        if value not in outbox_aliases():
            raise IncorrectLookupParameters
        return rows.using(value)


def ready_queues() -> Iterable[str]:
    """Queues in which a job is ready, each found by one step along the index of the claims."""
    ready = Job.objects.filter(state=State.READY, blocked=False).order_by("queue")
    queues = ready.values_list("queue", flat=True)
    last = ""
    for _ in range(QUEUE_LIMIT):
        found = queues.filter(queue__gt=last).first()
        if found is None:
            return
        yield found
        last = found
