"""A pass is done once nothing is left, after every transaction older than it has ended."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs.models.horizon import horizon, older_than
from django_jobs.operations.backfilling import found_pass
from django_jobs.testing import drain
from tests.app import backfills as declared
from tests.app.backfills import count_changes, fill
from tests.app.models import Item
from tests.backfills.parties import changes, make_items, start, sweep
from tests.rows.parties import party
from tests.waiting import until

IN_DEFAULT = pytest.mark.django_db(transaction=True, databases="__all__")


class OldWriter:
    """A transaction that inserts a row with the lowest key, and commits when it is told."""

    def __init__(self) -> None:
        self.block: Any = transaction.atomic()

    def insert(self, key: int) -> None:
        self.block.__enter__()
        Item.objects.create(pk=key, name="late")

    def read(self) -> None:
        self.block.__enter__()
        Item.objects.first()

    def commit(self) -> None:
        self.block.__exit__(None, None, None)


def drain_aside() -> threading.Thread:
    def work() -> None:
        try:
            drain()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def note_of(pass_id: Any) -> str:
    note: str = found_pass(pass_id).note
    return note


@IN_DEFAULT
def test_a_row_that_an_older_transaction_commits_behind_the_cursor_is_not_left_out() -> None:
    """With ``count``: the sweep goes on meanwhile, and sweeps again."""
    make_items(7)
    low = Item.objects.order_by("pk").values_list("pk", flat=True)[0] - 1
    writer = OldWriter()
    with party() as old:
        old.do(writer.insert, low)
        started = start(fill)
        sweeping = drain_aside()
        until(lambda: "older than the pass" in note_of(started.pk))
        assert changes() == [1] * 7  # All that it could see.
        assert found_pass(started.pk).state == "running"
        old.do(writer.commit)
        sweeping.join(30)
    done = found_pass(started.pk)
    assert (done.state, done.rows, done.sweeps, done.note) == ("completed", 8, 2, "")
    assert changes() == [1] * 8


@IN_DEFAULT
def test_without_a_count_a_sweep_begins_once_older_transactions_have_ended() -> None:
    make_items(7)
    low = Item.objects.order_by("pk").values_list("pk", flat=True)[0] - 1
    writer = OldWriter()
    with party() as old:
        old.do(writer.insert, low)
        started = start(count_changes)
        sweeping = drain_aside()
        until(lambda: "older than the pass" in note_of(started.pk))
        assert changes() == [0] * 7
        old.do(writer.commit)
        sweeping.join(30)
    assert found_pass(started.pk).state == "completed"
    assert changes() == [1] * 8


@IN_DEFAULT
def test_an_open_transaction_counts_before_it_has_written_and_a_newer_one_does_not() -> None:
    reader, newer = OldWriter(), OldWriter()
    with party() as old, party() as young:
        old.do(reader.read)
        moment = horizon("default")
        assert moment is not None
        assert "session" in older_than("default", moment)
        old.do(reader.commit)
        young.do(newer.insert, 1)
        assert older_than("default", moment) == ""
        young.do(newer.commit)


@IN_DEFAULT
def test_rows_that_come_after_the_start_do_not_prolong_a_pass() -> None:
    make_items(4)
    started = start(count_changes)
    declared.before_page[:] = [lambda: make_items(3)] * 2
    drain()
    assert found_pass(started.pk).state == "completed"
    assert changes() == [1] * 4 + [0] * 6


def test_a_count_that_stays_above_0_stalls_the_pass_and_says_so(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_items(7)
    monkeypatch.setattr(fill, "handle", lambda page: None)
    done = sweep(fill)
    assert (done.state, done.sweeps, done.remaining) == ("failed", 2, 7)
    assert "count says 7 after 2 sweeps" in done.error


@pytest.mark.parametrize("bad", [float("nan"), -1, 1.5, float("inf"), True, "0", None])
def test_a_count_that_is_no_whole_number_never_means_done(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch, bad: object
) -> None:
    make_items(1)
    monkeypatch.setattr(type(fill), "remaining", lambda self, tenant: bad)
    done = sweep(fill)
    assert done.state == "failed"
    assert "whole number" in done.error
