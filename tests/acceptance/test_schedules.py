"""Schedules under real workers: killed, several at once, with clocks that are off."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from django_jobs.models import Job, Schedule
from django_jobs.models.decision import decisions
from tests.app.models import Ledger
from tests.waiting import until

TICKING = "tests.app.clockwork.ticking"


@pytest.fixture
def clockwork(jobs_alias: str, worker: Any) -> Any:
    """Starts a worker that knows the schedules of ``tests.app.clockwork``."""
    return lambda: worker("--threads", "4", AUTODISCOVER=["jobs", "clockwork"])


def ticks() -> list[datetime]:
    """The occurrences for which bodies ran, each as often as one did."""
    notes = Ledger.objects.filter(note__startswith="tick ").values_list("note", flat=True)
    return sorted(datetime.fromisoformat(note.removeprefix("tick ")) for note in notes)


def rows(alias: str) -> Any:
    return Schedule.objects.using(alias).annotate(clock=Now())


def test_a_crash_and_a_deploy_gap_lose_and_double_no_occurrence(
    jobs_alias: str, clockwork: Any
) -> None:
    first = clockwork()
    until(lambda: len(ticks()) >= 2)
    first.kill()
    known = len(ticks())
    gap = ticks()[-1] + timedelta(seconds=3)
    until(lambda: rows(jobs_alias).get(name=TICKING).clock > gap)
    second = clockwork()
    until(lambda: len(ticks()) >= known + 4)
    assert second.stop() == 0
    # What the killed worker had claimed runs when its lease is over; it has been staged.
    fired = decisions(jobs_alias).filter(schedule=TICKING).order_by("occurrence")
    at = list(fired.values_list("occurrence", flat=True))
    assert len(at) >= 6
    assert at == [at[0] + number * timedelta(seconds=1) for number in range(len(at))]
    assert set(fired.values_list("outcome", flat=True)) == {"fired"}
    jobs = Job.objects.using(jobs_alias).filter(name=TICKING)
    assert jobs.count() == len(set(jobs.values_list("run_at", flat=True)))


def test_workers_side_by_side_with_wrong_clocks_run_each_occurrence_once(
    jobs_alias: str, clockwork: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = []
    for minutes in ("-7", "0", "5"):
        monkeypatch.setenv("TEST_CLOCK_OFF", minutes)
        workers.append(clockwork())
    for running in workers:
        running.wait_for("started: queues")
    until(lambda: len(ticks()) >= 3)
    until(lambda: Ledger.objects.filter(note="drag start").count() >= 2)
    for running in workers:
        assert running.stop() == 0
    found = ticks()
    assert found == [found[0] + number * timedelta(seconds=1) for number in range(len(found))]
    assert abs(found[-1] - rows(jobs_alias).get(name=TICKING).clock) < timedelta(seconds=60)
    # Each when it is due, and not a poll later.
    made = decisions(jobs_alias).filter(schedule=TICKING)
    late = sorted(one.decided_at - one.occurrence for one in made if one.occurrence)
    assert timedelta(0) <= late[0] <= late[len(late) // 2] < timedelta(seconds=0.5)
    # A slow job runs once at a time, and a schedule that fails delays nobody.
    notes = Ledger.objects.filter(note__startswith="drag").order_by("id")
    assert list(notes.values_list("note", flat=True)[:3]) == [
        "drag start",
        "drag end",
        "drag start",
    ]
    dragging = decisions(jobs_alias).filter(schedule="tests.app.clockwork.dragging")
    assert dragging.filter(outcome="fired").count() >= 2
    hopeless = rows(jobs_alias).get(name="tests.app.clockwork.hopeless")
    assert hopeless.error == "ZeroDivisionError: no tenants today"
    assert any("schedule tests.app.clockwork.hopeless: Zero" in one.output for one in workers)
