"""Pages by key: any total order, cursors that lose nothing, and sources that cannot be paged."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models import F, QuerySet
from django.test.utils import CaptureQueriesContext

from django_jobs.backfills import Keyset, Page
from django_jobs.errors import DeclarationError, Terminal
from django_jobs.models import Attempt, Job
from django_jobs.states import State
from tests.app.backfills import items
from tests.app.models import Account, Item
from tests.backfills.parties import make_items
from tests.rows.parties import make

BASE = datetime(2026, 3, 1, 12, tzinfo=UTC)


def walk(keyset: Keyset, limit: int) -> list[int]:
    """The keys of all rows, page by page, each page from the text of a cursor."""
    found, cursor, upto = [], None, keyset.last()
    while page := keyset.page(cursor, upto, limit):
        found += [place[0] for place in page]
        cursor = keyset.cursor(page[-1])
    return found


ORDERS: list[Sequence[str]] = [
    (),
    ("-pk",),
    ("rank",),
    ("-rank",),
    ("rank", "-pk"),
    ("-rank", "name", "pk"),
    ("name", "-rank"),
    ("token",),
    ("-token", "rank"),
    ("rank", "token", "-name"),
]


@pytest.mark.parametrize("order_by", ORDERS, ids=[",".join(o) or "default" for o in ORDERS])
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_of_any_order_hold_every_row_once_and_in_order(
    jobs_alias: str, order_by: Sequence[str], limit: int
) -> None:
    made = [Item(name=f"n{n % 4}", rank=n % 3, token=uuid.uuid4()) for n in range(23)]
    items().bulk_create(made)
    keyset = Keyset.of("x", items(), order_by)
    in_order = [key.order for key in keyset.keys]
    assert walk(keyset, limit) == list(items().order_by(*in_order).values_list("pk", flat=True))


def test_times_that_differ_by_a_microsecond_are_told_apart(jobs_alias: str) -> None:
    made = [Attempt(job_id=uuid.uuid4(), number=n, error_class="E") for n in range(9)]
    for n, one in enumerate(made):
        one.ended_at = BASE + timedelta(microseconds=n // 2)
    rows = Attempt.objects.using(jobs_alias)
    rows.bulk_create(made)
    keyset = Keyset.of("x", rows.all(), ("ended_at",))
    assert walk(keyset, 2) == list(rows.order_by("ended_at", "pk").values_list("pk", flat=True))


def test_no_statement_of_a_page_has_an_offset(jobs_alias: str) -> None:
    make_items(10)
    keyset = Keyset.of("x", items(), ("rank", "name"))
    with CaptureQueriesContext(connections[jobs_alias]) as asked:
        walk(keyset, 3)
    assert len(asked) == 6  # The bound, four pages, and one that finds nothing.
    assert not [q["sql"] for q in asked if "OFFSET" in q["sql"].upper()]


def test_the_row_comparison_reads_one_range_of_an_index(db: None) -> None:
    keyset = Keyset.of("x", Account.objects.all(), ("name", "pk"))
    text = str(keyset.between('["a", "1"]', '["b", "2"]').query)
    assert '("testapp_account"."name", "testapp_account"."id") > ' in text
    assert '("testapp_account"."name", "testapp_account"."id") <= ' in text


def test_a_unique_column_needs_no_second_one(db: None) -> None:
    keyset = Keyset.of("x", Account.objects.all(), ("name",))
    assert [key.order for key in keyset.keys] == ["name"]


REFUSED: dict[str, tuple[Any, Sequence[str], str]] = {
    "a list": (lambda: [1], (), "return a queryset"),
    "values": (lambda: Item.objects.values("id"), (), "values"),
    "a slice": (lambda: Item.objects.all()[:5], (), "sliced"),
    "a union": (lambda: Item.objects.all().union(Item.objects.all()), (), "union"),
    "a column that may be null": (Item.objects.all, ("at",), "NULL"),
    "no column": (Item.objects.all, ("colour",), "no column"),
    "a column of another model": (Item.objects.all, ("name__length",), "no column"),
}


@pytest.mark.parametrize("source, order_by, reason", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_paged_is_refused_with_the_reason(
    source: Any, order_by: Sequence[str], reason: str
) -> None:
    with pytest.raises(DeclarationError, match=reason):
        Keyset.of("x", source(), order_by)


def test_a_page_reads_its_rows_when_they_are_asked_for_and_in_its_order(jobs_alias: str) -> None:
    make_items(5)
    keyset = Keyset.of("x", items().filter(changes=0), ("-pk",))
    pks = [place[0] for place in keyset.page(None, None, 4)]
    page = Page(keyset, pks, "")
    with CaptureQueriesContext(connections[jobs_alias]) as asked:
        assert [row.pk for row in page] == pks == sorted(pks, reverse=True)
        assert (len(page), page[0].pk, page[1:][0].pk) == (4, pks[0], pks[1])
    assert len(asked) == 1
    items().filter(pk=pks[2]).update(changes=1)
    assert page.queryset.update(changes=7) == 3  # One has left the source.
    assert len(Page(keyset, pks, "")) == 0


@pytest.mark.parametrize("order", ["token", "pk"])
def test_a_large_page_is_one_parameter(jobs_alias: str, order: str) -> None:
    made = make_items(3)
    keyset = Keyset.of("x", items(), (order,))
    pks = [*range(10**6, 10**6 + 40_000), *(one.pk for one in made)]
    assert keyset.among(pks).count() == 3


def test_uuid_keys_are_found_among_many(jobs_alias: str) -> None:
    rows = Job.objects.all()
    made = [make(State.DONE).pk for _ in range(3)]
    assert set(Keyset.of("x", rows).among(made[:2]).values_list("pk", flat=True)) == set(made[:2])
    assert walk(Keyset.of("x", rows), 2) == sorted(made)


def test_a_cursor_of_another_order_is_refused(db: None) -> None:
    keyset = Keyset.of("x", Item.objects.all())
    for cursor in ('["1", "2"]', "[]", "nonsense", '["abc"]'):
        with pytest.raises(Terminal, match="cursor"):
            keyset.between(cursor, None)


def test_a_locking_source_has_its_bounds_read_without_a_transaction(jobs_alias: str) -> None:
    make_items(2)
    rows: QuerySet[Item] = items().select_for_update().annotate(twice=F("rank") * 2)
    assert Keyset.of("x", rows).last() is not None
