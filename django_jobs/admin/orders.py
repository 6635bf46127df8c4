"""What an operator orders for one row or for many: cancel, retry; and how each row took it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from django import forms
from django.db import OperationalError
from django.db.models import QuerySet

from django_jobs.errors import JobsError
from django_jobs.models import picking
from django_jobs.operations import cancel, outbox_aliases, retry

PAGE = 500
"""Rows that are read at a time."""
ROW_LIMIT = 10_000
"""Rows that one order reaches. What is left is said, and a repeated order goes on there."""
TIME_LIMIT = 25.0
"""Seconds after which an order stops, well before web servers give up on a request."""
LOCK_WAIT = 0.2
"""Seconds that one row is waited for."""
LISTED = 20
"""Refusals that are told one by one."""


class ReasonForm(forms.Form):
    """What every order needs to know."""

    reason = forms.CharField(
        max_length=1000,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="Stored with each job and shown to everybody who looks at it.",
    )


class RetryForm(ReasonForm):
    """What a retry needs to know, and may be told."""

    force = forms.BooleanField(
        required=False,
        label="Also run cancelled and done jobs again",
        help_text="Otherwise only dead and failed jobs and quarantined entries are retried.",
    )


class Row(NamedTuple):
    """What an order needs to know of a row. ``id`` is the job's, for entries too."""

    pk: Any
    id: UUID
    name: str


@dataclass(frozen=True)
class Verb:
    """One order: how it reads, and what it asks the operator."""

    name: str
    past: str
    title: str
    warning: str
    form: type[forms.Form]
    give: Callable[..., object]


def _cancel(job_id: UUID, tenant: str | None, by: str, reason: str) -> None:
    cancel(job_id, tenant=tenant, by=by, reason=reason)


def _retry(job_id: UUID, tenant: str | None, by: str, reason: str, force: bool) -> None:
    retry(job_id, tenant=tenant, force=force, by=by, reason=reason)


CANCEL = Verb(
    name="cancel",
    past="cancelled",
    title="Cancel",
    warning="A cancelled job does not run. A body that runs now is told to stop.",
    form=ReasonForm,
    give=_cancel,
)
RETRY = Verb(
    name="retry",
    past="put back to run again",
    title="Retry",
    warning="Each job gets a full new set of attempts; its history stays.",
    form=RetryForm,
    give=_retry,
)
VERBS = {verb.name: verb for verb in (CANCEL, RETRY)}


@dataclass
class Report:
    """How the rows took an order. ``refusals`` holds the first ``LISTED`` of ``refused``."""

    done: list[Row] = field(default_factory=list)
    refused: int = 0
    refusals: list[tuple[Row, str]] = field(default_factory=list)
    left: bool = False

    def refuse(self, row: Row, why: str) -> None:
        """Note that ``row`` did not take it."""
        self.refused += 1
        if self.refused <= LISTED:
            self.refusals.append((row, why))


def carry_out(
    verb: Verb, rows: QuerySet[Any], tenant: str | None, by: str, answers: dict[str, Any]
) -> Report:
    """Give the order to each of ``rows``, each in a transaction of its own.

    A row that refuses, or that another transaction holds, does not keep the others from it.
    """
    report = Report()
    until = time.monotonic() + TIME_LIMIT
    for number, row in enumerate(_each(rows)):
        if number >= ROW_LIMIT or time.monotonic() > until:
            report.left = True
            break
        why = _give(lambda row=row: verb.give(row.id, tenant, by, **answers))  # type: ignore[misc]
        if why is None:
            report.done.append(row)
        else:
            report.refuse(row, why)
    return report


def _each(rows: QuerySet[Any]) -> Iterator[Row]:
    """All rows once, whatever the order does to the columns that they were filtered by."""
    ordered = rows.order_by("pk").values_list("pk", "id", "name")
    page = list(ordered[:PAGE])
    while page:
        yield from (Row(*values) for values in page)
        page = list(ordered.filter(pk__gt=page[-1][0])[:PAGE]) if len(page) == PAGE else []


def _give(order: Callable[[], object]) -> str | None:
    """``None`` when the row took the order, else why it did not."""
    try:
        with ExitStack() as stack:
            for alias in outbox_aliases():
                stack.enter_context(picking.impatient_transaction(alias, LOCK_WAIT))
            order()
    except JobsError as error:
        return str(error)
    except OperationalError as error:
        if not picking.is_contention(error):
            raise
        return f"Another transaction held it for longer than {LOCK_WAIT} s. Try again."
    return None
