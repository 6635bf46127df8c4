"""Rows for backfills, and what a pass has come to."""

from __future__ import annotations

from typing import Any

from django_jobs.backfills import Backfill as Declaration
from django_jobs.models import Backfill
from django_jobs.operations.backfilling import found_pass, start_backfill
from django_jobs.testing import drain
from tests.app.backfills import items
from tests.app.models import Item


def make_items(number: int, **columns: Any) -> list[Item]:
    """So many rows, in the database that holds the jobs."""
    made = [Item(name=f"item {n}", **columns) for n in range(number)]
    return items().bulk_create(made)


def changes() -> list[int]:
    """How often each row was changed, in the order of their keys."""
    return list(items().order_by("pk").values_list("changes", flat=True))


def start(declared: Declaration, **options: Any) -> Backfill:
    return start_backfill(declared, **options)


def sweep(declared: Declaration, **options: Any) -> Any:
    """A pass from its start to its end, in this thread; the ledger's row."""
    started = start(declared, **options)
    drain()
    return found_pass(started.pk)
