"""Whose jobs a waker takes back, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from django_jobs.loops.plan import Plan
from django_jobs.loops.process import SQLITE_LEASE, Process
from django_jobs.loops.waker import Waker
from django_jobs.states import State
from tests.rows.parties import jobs, make, row, run_of
from tests.rows.test_claiming import make_many


def overdue() -> Any:
    """A running job whose lease has run out."""
    return make(State.RUNNING, lease_expires_at=Now() - timedelta(seconds=1))


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("django_jobs.loops.waker.time.monotonic", lambda: self.now)


@pytest.mark.parametrize("outage", [False, True])
def test_nothing_lapses_before_the_database_was_seen_for_a_whole_lease(
    jobs_alias: str, settings: Any, monkeypatch: pytest.MonkeyPatch, outage: bool
) -> None:
    """On SQLite the leases are longer than the setting says, and so is the wait."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "LEASE": 10}
    lease = SQLITE_LEASE if jobs_alias == "sqlite" else 10
    clock, waker, lost = Clock(monkeypatch), Process(Plan()).waker, overdue()
    waker.tick()
    if outage:
        clock.now += lease - 1
        waker.outage()
        clock.now += 1
        waker.tick()
    clock.now += lease - 0.1
    assert waker.tick() == 0
    clock.now += 0.2
    assert waker.tick() == 1
    assert row(lost.id).state == State.READY


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_on_sqlite_a_process_takes_nothing_from_itself(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "DATABASE": "sqlite"}
    clock, process = Clock(monkeypatch), Process(Plan())
    ours, lost = overdue(), overdue()
    process.leases.add([run_of(ours)])
    process.waker.tick()
    clock.now += SQLITE_LEASE
    assert process.waker.tick() == 1
    assert (row(ours.id).state, row(lost.id).state) == (State.RUNNING, State.READY)


def test_what_a_waker_is_told_to_spare_stays_with_its_worker(jobs_alias: str) -> None:
    ours, lost = overdue(), overdue()
    assert Waker(0, spared=lambda: [ours.id]).tick() == 1
    assert (row(ours.id).state, row(lost.id).state) == (State.RUNNING, State.READY)


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_the_few_expired_among_many_good_leases_are_found_at_once_and_many_in_bounded_parts() -> (
    None
):
    """HBT-07."""
    make_many(State.RUNNING, 300)
    lost = {overdue().id for _ in range(10)}
    assert {one.job_id for one in jobs().lapse(limit=10, max_crashes=3)} == lost
    jobs().filter(state="running").update(lease_expires_at=Now() - timedelta(seconds=1))
    parts = [len(jobs().lapse(limit=120, max_crashes=3)) for _ in range(4)]
    assert parts == [120, 120, 60, 0]
