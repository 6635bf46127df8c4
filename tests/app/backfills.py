"""The backfills that the tests run. ``Item.changes`` counts how often each row was changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.db.models import F, QuerySet

from django_jobs import ALL, Page, Retry, backfill, conf
from tests.app.models import Item

FAST = Retry(max_attempts=3, base=0.05, jitter=False)


def items() -> QuerySet[Item]:
    return Item.objects.using(conf.current().database)


def unchanged() -> QuerySet[Item]:
    return items().filter(changes=0)


def bump(page: Page) -> None:
    page.queryset.update(changes=F("changes") + 1)


before_page: list[Callable[[], object]] = []
"""What happens before the pages to come of ``count_changes``, on the sweep's own thread."""


def happens() -> None:
    if before_page:
        before_page.pop(0)()


@backfill(source=items, batch=3, rate=None, retry=FAST, name="count_changes", throttle=happens)
def count_changes(page: Page) -> None:
    """Changes every row, whatever its state: a row that is handled twice shows it."""
    bump(page)


@backfill(
    source=unchanged, batch=3, rate=None, retry=FAST, name="fill", count=lambda: unchanged().count()
)
def fill(page: Page) -> None:
    """Takes rows out of its own source."""
    bump(page)


@backfill(source=items, batch=2, rate=None, retry=FAST, name="fill_slowly")
def fill_slowly(page: Page) -> None:
    """Takes a while between its write and the commit."""
    bump(page)
    time.sleep(0.01)


@backfill(
    source=lambda tenant: items().filter(tenant=tenant),
    tenant=lambda: ["acme", "bolt"],
    batch=3,
    rate=None,
    name="fill_tenant",
)
def fill_tenant(page: Page) -> None:
    assert {row.tenant for row in page} == {page.tenant}
    bump(page)


@backfill(source=items, batch=3, rate=None, tenant=ALL, name="fill_all_tenants")
def fill_all_tenants(page: Page) -> None:
    seen_tenants.append(page.tenant)
    bump(page)


seen_tenants: list[str] = []


@backfill(source=items, batch=2, rate=None, shards=4, parallel=2, retry=FAST, name="fill_shards")
def fill_shards(page: Page) -> None:
    bump(page)
    time.sleep(0.005)


@backfill(source=items, batch=8, rate=None, skip=2, retry=FAST, name="fill_what_can_be")
def fill_what_can_be(page: Page) -> None:
    for row in page:
        if row.name.startswith("bad"):
            raise ValueError(f"{row.name} is bad")
    bump(page)


outside: list[list[Any]] = []


@backfill(source=items, batch=2, rate=None, atomic=False, retry=FAST, name="tell_outside")
def tell_outside(page: Page) -> None:
    outside.append([row.pk for row in page])
