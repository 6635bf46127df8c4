"""Rows that fail, rows that others hold, pages that take too long, and the pace of pages."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from django.db import InterfaceError, connections, transaction

from django_jobs.errors import BackfillRefused, JobTimeout, RetryAfter, Terminal
from django_jobs.models import Job, SkippedRow
from django_jobs.models.backfill import BackfillRangeQuerySet
from django_jobs.operations.backfilling import found_pass, resume_backfill
from django_jobs.testing import drain
from tests.app import backfills as declared
from tests.app.backfills import (
    count_changes,
    fill_all_tenants,
    fill_shards,
    fill_tenant,
    fill_what_can_be,
    items,
    tell_outside,
)
from tests.app.models import Item
from tests.backfills.parties import changes, make_items, start, sweep
from tests.rows.parties import party

IN_DEFAULT = pytest.mark.django_db(transaction=True, databases="__all__")


def spoil(*names: str) -> None:
    for name in names:
        items().filter(name=name).update(name=f"bad {name}")


def test_rows_that_fail_are_listed_and_passed_over_up_to_the_limit(jobs_alias: str) -> None:
    made = make_items(20)
    spoil("item 5", "item 6")
    done = sweep(fill_what_can_be)
    assert (done.state, done.rows, done.skipped) == ("completed", 18, 2)
    assert [n for n, times in enumerate(changes()) if times != 1] == [5, 6]
    assert set(changes()) == {0, 1}
    skips = SkippedRow.objects.using(jobs_alias)
    assert [s.key for s in skips] == [f'["{made[n].pk}"]' for n in (5, 6)]
    assert "bad item 5 is bad" in skips[0].error


def test_one_bad_row_too_many_fails_the_pass_and_a_resume_begins_at_it(jobs_alias: str) -> None:
    make_items(20)
    spoil("item 5", "item 6", "item 7")
    started = start(fill_what_can_be)
    while found_pass(started.pk).state == "running":
        drain()
    failed = found_pass(started.pk)
    assert (failed.state, failed.rows, failed.skipped) == ("failed", 5, 2)
    items().filter(name="bad item 7").update(name="good")
    resume_backfill(started.pk)
    drain()
    done = found_pass(started.pk)
    assert (done.state, done.rows + done.skipped) == ("completed", 20)
    assert sorted(changes()) == [0, 0] + [1] * 18


@IN_DEFAULT
def test_a_page_that_meets_a_lock_time_out_is_halved_and_gets_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_items(8)
    sizes: list[int] = []
    with party() as other:
        block: Any = transaction.atomic()

        def lock() -> None:
            block.__enter__()
            Item.objects.select_for_update().get(name="item 5")

        def handle(page: Any) -> None:
            if not sizes:
                other.do(lock)
            sizes.append(len(page))
            if len(page) == 1 and page[0].name == "item 5":
                other.do(block.__exit__, None, None, None)
            with connections["default"].cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '20ms'")
            declared.bump(page)

        monkeypatch.setattr(fill_what_can_be, "handle", handle)
        done = sweep(fill_what_can_be)
    assert (done.state, done.rows, done.skipped) == ("completed", 8, 0)
    assert changes() == [1] * 8
    assert sizes[:3] == [8, 4, 4]


def test_pages_grow_and_shrink_toward_their_target(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_items(60)
    sizes: list[int] = []
    adaptive = dataclasses.replace(count_changes.declared, target=100.0, max_batch=10, batch=3)
    monkeypatch.setattr(count_changes, "declared", adaptive)
    monkeypatch.setattr(count_changes, "handle", lambda page: sizes.append(len(page)))
    sweep(count_changes)
    assert sizes[:7] == [3, 4, 5, 6, 8, 10, 10]
    sizes.clear()
    late = dataclasses.replace(adaptive, target=0.0001, batch=8)
    monkeypatch.setattr(count_changes, "declared", late)
    sweep(count_changes, force=True)
    assert sizes[:4] == [8, 4, 2, 1]


def test_a_tenants_pass_sees_its_own_rows_only(jobs_alias: str) -> None:
    make_items(5, tenant="acme")
    make_items(5, tenant="bolt")
    done = sweep(fill_tenant, tenant="acme")
    assert (done.state, done.rows, done.tenant) == ("completed", 5, "acme")
    assert changes() == [1] * 5 + [0] * 5
    assert Job.objects.get().tenant == "acme"
    assert sweep(fill_tenant, tenant="bolt").state == "completed"
    assert changes() == [1] * 10


def test_one_pass_for_all_tenants_is_asked_for_by_name(jobs_alias: str, settings: Any) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "REQUIRE_TENANT": True}
    declared.seen_tenants.clear()
    make_items(4, tenant="acme")
    make_items(4, tenant="bolt")
    assert sweep(fill_all_tenants).state == "completed"
    assert changes() == [1] * 8
    assert declared.seen_tenants == [""] * 3


def test_shards_cover_every_key_once_with_as_many_jobs_as_are_allowed(jobs_alias: str) -> None:
    make_items(21)
    done = sweep(fill_shards)
    assert (done.state, done.rows) == ("completed", 21)
    assert changes() == [1] * 21
    ranges = list(done.ranges.order_by("number"))
    assert [r.after for r in ranges[1:]] == [r.upto for r in ranges[:-1]]
    assert ranges[0].after is None
    assert Job.objects.filter(name="fill_shards").count() == 2


def test_outside_a_transaction_a_page_whose_cursor_was_lost_is_handed_over_again(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [item.pk for item in make_items(5)]
    declared.outside.clear()
    advance, lost = BackfillRangeQuerySet.advance, [1]

    def lose_one(self: Any, *arguments: Any) -> int:
        if lost and sum(map(len, declared.outside)) == 4:
            lost.clear()
            raise RuntimeError("the reply was lost")
        return advance(self, *arguments)

    monkeypatch.setattr(BackfillRangeQuerySet, "advance", lose_one)
    started = start(tell_outside)
    while found_pass(started.pk).state == "running":
        drain()
    assert declared.outside == [made[:2], made[2:4], made[2:4], made[4:]]
    assert found_pass(started.pk).rows == 5


@pytest.mark.parametrize(
    "error", [JobTimeout("late"), InterfaceError("gone"), Terminal("no"), RetryAfter(0)]
)
def test_what_is_no_fault_of_a_row_is_never_taken_for_one(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    make_items(1)

    def handle(page: Any) -> None:
        raise error

    monkeypatch.setattr(fill_what_can_be, "handle", handle)
    started = start(fill_what_can_be)
    drain()
    assert (found_pass(started.pk).rows, found_pass(started.pk).skipped) == (0, 0)
    assert type(error).__name__ in found_pass(started.pk).error


def test_a_backfill_comes_after_every_tenants_pass_of_another(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = dataclasses.replace(count_changes.declared, depends_on=("fill_tenant",))
    monkeypatch.setattr(count_changes, "declared", after)
    sweep(fill_tenant, tenant="acme")
    with pytest.raises(BackfillRefused, match="fill_tenant"):
        start(count_changes)
    sweep(fill_tenant, tenant="bolt")
    assert sweep(count_changes).state == "completed"
