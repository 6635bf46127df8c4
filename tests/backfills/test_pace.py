"""How fast a sweep goes: its rate, the database's health, and what ends a wait."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs.backfills import Health
from django_jobs.current import CurrentJob
from django_jobs.errors import LeaseLost
from django_jobs.ids import new_id
from django_jobs.models import Backfill
from django_jobs.models.health import fault
from django_jobs.operations.backfilling import found_pass, rerate_backfill
from django_jobs.sweep.pacing import Pacer
from django_jobs.testing import drain
from tests.app.backfills import count_changes
from tests.app.models import Item
from tests.backfills.parties import make_items, start
from tests.rows.parties import party, until_one_waits

IN_DEFAULT = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def pacer(jobs_alias: str) -> Pacer:
    started = start(count_changes)
    current = CurrentJob(new_id(), "x", 1, 3, "")
    return Pacer(count_changes, current, started.pk, jobs_alias)


def wait_after_a_page(pacer: Pacer, rate: float | None, took: float, rows: int = 1) -> float:
    """How long the next page has to wait, in seconds."""
    rerate_backfill(pacer.pass_id, rate)
    pacer.look(now=True)
    pacer.page_began()
    time.sleep(took)
    pacer.page_ended(rows)
    began = time.monotonic()
    pacer.wait()
    return time.monotonic() - began


def test_the_first_page_waits_for_nothing_and_each_next_one_for_its_turn(pacer: Pacer) -> None:
    began = time.monotonic()
    pacer.wait()
    assert time.monotonic() - began < 0.15
    assert wait_after_a_page(pacer, 5.0, 0.0) >= 0.15
    assert wait_after_a_page(pacer, 5.0, 0.25) < 0.1  # Its own time counts.
    assert wait_after_a_page(pacer, 5.0, 0.0) >= 0.15  # And is not saved up.
    assert wait_after_a_page(pacer, 100_000.0, 0.0) < 0.1
    assert wait_after_a_page(pacer, None, 0.0) < 0.1


def test_a_rate_may_be_one_of_rows(pacer: Pacer) -> None:
    Backfill.objects.update(rate_per="rows")
    assert wait_after_a_page(pacer, 1000.0, 0.0, rows=300) >= 0.25
    assert wait_after_a_page(pacer, 1000.0, 0.0, rows=3) < 0.1


def test_a_wait_ends_at_once_when_the_run_must_stop(pacer: Pacer) -> None:
    Backfill.objects.update(rate=0.001)
    pacer.page_began()
    threading.Timer(0.2, pacer.current.cancelled.set).start()
    began = time.monotonic()
    with pytest.raises(LeaseLost):
        pacer.wait()
    assert time.monotonic() - began < 5


def test_a_function_of_the_project_holds_the_pass_and_its_reason_is_shown(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_items(3)
    notes: list[str] = []
    started = start(count_changes)

    def throttle() -> str:
        notes.append(found_pass(started.pk).note)
        return "" if len(notes) > 1 else "the queue of mails is long"

    changed = dataclasses.replace(count_changes.declared, throttle=throttle)
    monkeypatch.setattr(count_changes, "declared", changed)
    drain()
    assert notes[:2] == ["", "throttle: the queue of mails is long"]
    assert (found_pass(started.pk).state, found_pass(started.pk).note) == ("completed", "")


@IN_DEFAULT
def test_sessions_that_wait_for_a_lock_are_a_fault_of_health() -> None:
    [item] = make_items(1)

    def lock() -> None:
        with transaction.atomic():
            Item.objects.select_for_update().get(pk=item.pk)

    limit = Health(lock_waits=0, transaction_age=None)
    assert fault("default", limit) == ""
    with party() as other, transaction.atomic():
        Item.objects.select_for_update().get(pk=item.pk)
        waits = other.start(lock)
        with party() as looking:
            looking.do(until_one_waits)
            assert "1 sessions wait for a lock" in looking.do(fault, "default", limit)
            assert looking.do(fault, "default", Health(lock_waits=1)) == ""
    waits.result(30)


@IN_DEFAULT
def test_an_old_transaction_is_a_fault_of_health_where_one_is_asked_for() -> None:
    block: Any = transaction.atomic()
    with party() as other:
        other.do(block.__enter__)
        other.do(Item.objects.first)
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.05)")
        assert "open for" in fault("default", Health(transaction_age=0.01))
        assert fault("default", Health()) == ""
        other.do(block.__exit__, None, None, None)
