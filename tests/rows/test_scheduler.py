"""The scheduler on real rows: what is due becomes a job, once, and every decision has its row."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now

from django_jobs import (
    conf,
    get,
    schedule,
)
from django_jobs.definitions import Definition
from django_jobs.loops import relay
from django_jobs.loops.scheduler import Scheduler
from django_jobs.models import Outbox
from django_jobs.models import schedule as rows
from django_jobs.schedules import registered, timetables
from tests.app.jobs import anything, noop

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is gone after it."""
    monkeypatch.setattr(registered, "_timetables", {})


def declared(job: Definition[..., Any] = noop, *args: Any, **options: Any) -> str:
    """A schedule that is due each hour unless told otherwise; its name."""
    if not args:
        options.setdefault("every", 3600)
    before = set(timetables())
    schedule(*args, **options)(job)
    (name,) = set(timetables()) - before
    return name


def tick() -> int:
    """One look of a scheduler that has just started."""
    return Scheduler().tick()


def rewind(name: str, by: timedelta) -> None:
    """As if the schedule had been decided up to so much earlier."""
    changed = rows.schedules(conf.current().database).filter(name=name)
    changed.update(watermark=F("watermark") - by, wake_at=Now() - by)


def armed(*names: str, missed: timedelta = timedelta(0)) -> None:
    """The schedules as a worker has found them, ``missed`` long ago."""
    assert tick() == 0
    for name in names:
        if missed:
            rewind(name, missed)


def entries() -> Any:
    return Outbox.objects.using(conf.current().database).order_by("seq")


def told(name: str) -> list[tuple[str, int]]:
    """What was decided, oldest first, and about how many occurrences."""
    made = rows.decisions(conf.current().database).filter(schedule=name).order_by("id")
    return list(made.values_list("outcome", "occurrences"))


def row(name: str) -> Any:
    return rows.schedules(conf.current().database).clocked().get(name=name)


# --- one occurrence ------------------------------------------------------------------------------


def test_a_new_schedule_is_armed_and_nothing_of_the_past_runs(jobs_alias: str) -> None:
    name = declared()
    armed(name)
    assert not entries().exists() and told(name) == []
    assert timedelta(0) < row(name).wake_at - row(name).clock <= HOUR


def test_a_due_occurrence_becomes_one_job_and_never_again(jobs_alias: str) -> None:
    name = declared(anything, arguments={"value": "{occurrence}"})
    armed(name, missed=HOUR)
    assert tick() == 1 and tick() == 0
    (entry,) = entries()
    occurrence = datetime.fromisoformat(entry.payload.split('"')[3])
    assert occurrence == row(name).watermark == entry.run_at
    assert occurrence.minute == occurrence.second == 0
    assert entry.enqueued_by == f"schedule:{name}"
    assert entry.idempotency_key == f"{name}@{occurrence:%Y-%m-%dT%H:00:00Z}"
    assert told(name) == [("fired", 1)]
    relay.tick(jobs_alias)
    assert get(entry.id).state == "ready"
    assert rows.decisions(jobs_alias).get().job_id == entry.id
