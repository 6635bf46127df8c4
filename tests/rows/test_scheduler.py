"""The scheduler on real rows: what is due becomes a job, once, and every decision has its row."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from django_jobs import (
    cancel,
    conf,
    get,
    look_ahead,
    pause_schedule,
    resume_schedule,
    schedule,
    trigger_schedule,
)
from django_jobs.connections import own_connection
from django_jobs.definitions import Definition
from django_jobs.errors import ScheduleNotFound
from django_jobs.ids import new_token
from django_jobs.loops import janitor, relay
from django_jobs.loops.scheduler import HELD_PAUSE, Scheduler
from django_jobs.models import Job, Outbox
from django_jobs.models import schedule as rows
from django_jobs.models.decision import decisions
from django_jobs.operations import firing
from django_jobs.operations.scheduling import standings
from django_jobs.schedules import registered, timetables
from django_jobs.states import LIVE, State
from django_jobs.testing import drain
from tests.app.jobs import anything, noop, record, slow, tenanted
from tests.rows.parties import at_once, party

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
    made = decisions(conf.current().database).filter(schedule=name).order_by("id")
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
    assert decisions(jobs_alias).get().job_id == entry.id


def test_a_worker_runs_the_occurrence(jobs_alias: str) -> None:
    name = declared(anything, arguments={"value": "of {occurrence}"})
    armed(name, missed=HOUR)
    tick()
    drain()
    job = Job.objects.get()
    assert job.state == "done"
    assert job.result == f"of {row(name).watermark.isoformat()}"


def test_schedulers_at_the_same_moment_make_each_occurrence_once(jobs_alias: str) -> None:
    names = [declared(noop, name=f"s{number}") for number in range(5)]
    armed(*names, missed=HOUR)

    def one() -> int:
        own_connection(jobs_alias)
        return Scheduler().tick()

    made = at_once(*[one] * (8 if jobs_alias == "default" else 2))
    while one := tick():
        made.append(one)
    assert sum(made) == 5 == entries().count()
    assert all(told(name) == [("fired", 1)] for name in names)


def test_workers_that_start_at_the_same_moment_declare_every_schedule(jobs_alias: str) -> None:
    names = [declared(noop, name=f"s{number}") for number in range(20)]
    shared = dict(timetables())
    rows.schedules(jobs_alias).declare({name: shared[name] for name in names[:3]}, first=True)

    def one() -> set[str]:
        own_connection(jobs_alias)
        return rows.schedules(jobs_alias).declare(shared, first=True)

    found = at_once(*[one] * (6 if jobs_alias == "default" else 2))
    assert all(ours == set(names) for ours in found)
    assert rows.schedules(jobs_alias).count() == 20


def test_a_scheduler_that_dies_before_its_commit_has_neither_moved_nor_staged(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = declared()
    armed(name, missed=HOUR)
    before = row(name).watermark

    def dies(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("django_jobs.operations.firing.ScheduleDecision", dies)
        with pytest.raises(KeyboardInterrupt):
            tick()
    assert row(name).watermark == before and not entries().exists()
    assert tick() == 1 and entries().count() == 1


def test_the_clock_of_the_host_is_asked_nowhere(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = declared()
    for clock in ("django.utils.timezone.now", "time.time"):
        monkeypatch.setattr(clock, lambda: 1 / 0)
    armed(name, missed=HOUR)
    assert tick() == 1


def test_a_database_whose_clock_was_set_back_makes_nothing_twice(jobs_alias: str) -> None:
    name = declared()
    armed(name, missed=HOUR)
    assert tick() == 1
    ahead = row(name).watermark + 3 * HOUR
    rows.schedules(jobs_alias).filter(name=name).update(watermark=ahead, wake_at=Now())
    assert tick() == 0
    assert row(name).watermark == ahead and row(name).wake_at > ahead
    assert entries().count() == 1


def test_history_that_was_pruned_makes_nothing_run_again(jobs_alias: str) -> None:
    name = declared()
    armed(name, missed=HOUR)
    tick()
    drain()
    Job.objects.all().delete()
    entries().delete()
    decisions(jobs_alias).delete()
    assert tick() == 0 and not entries().exists()


# --- missed occurrences --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "ran", "decided"),
    [
        ({"missed": "skip"}, [0], [("skipped", 3), ("fired", 1)]),
        ({"missed": "once"}, [3], [("coalesced", 3), ("fired", 1)]),
        ({"missed": "all"}, [3, 2, 1, 0], [("fired", 1)] * 4),
        (
            {"missed": "all", "max_catch_up": 2},
            [1, 0],
            [("skipped", 2), ("fired", 1), ("fired", 1)],
        ),
    ],
)
def test_a_gap_of_four_occurrences(
    jobs_alias: str, options: dict[str, Any], ran: list[int], decided: list[tuple[str, int]]
) -> None:
    name = declared(**options)
    armed(name, missed=4 * HOUR)
    assert tick() == len(ran)
    last = row(name).watermark
    assert [entry.run_at for entry in entries()] == [last - hours * HOUR for hours in ran]
    assert told(name) == decided
    assert tick() == 0


def test_a_year_without_workers_is_passed_over_at_once(jobs_alias: str) -> None:
    name = declared(noop, "* * * * *", tz="Europe/Rome", missed="skip")
    armed(name, missed=timedelta(days=365))
    began = time.monotonic()
    assert tick() == 1
    assert time.monotonic() - began < 3
    assert told(name) == [("skipped", 1000), ("fired", 1)]
    assert row(name).clock - row(name).watermark < timedelta(minutes=2)


def test_a_changed_expression_or_zone_is_no_missed_occurrence(jobs_alias: str) -> None:
    name = declared(noop, "0 * * * *", tz="Europe/Rome", missed="all")
    armed(name, missed=3 * HOUR)
    registered._timetables.clear()
    declared(noop, "0 * * * *", tz="Asia/Kolkata", missed="all")
    assert tick() == 0 and not entries().exists()
    assert told(name) == [("changed", 1)]
    assert row(name).cadence == "0 * * * * Asia/Kolkata"
    rewind(name, 2 * HOUR)
    assert tick() == 2


def test_a_changed_policy_keeps_what_is_due(jobs_alias: str) -> None:
    name = declared(missed="skip")
    armed(name, missed=3 * HOUR)
    registered._timetables.clear()
    declared(missed="all")
    assert tick() == 3


def test_a_worker_of_the_older_release_leaves_the_newer_declaration_alone(jobs_alias: str) -> None:
    name = declared(every=3600)
    old = Scheduler()
    assert old.tick() == 0
    older = dict(registered._timetables)
    registered._timetables.clear()
    declared(every=60)
    new = Scheduler()
    assert new.tick() == 0
    rewind(name, timedelta(minutes=1))
    registered._timetables.clear()
    registered._timetables.update(older)
    assert Scheduler().tick() == 0, "one that a supervisor started again"
    assert row(name).cadence == "every 60 s"
    # A roll-back: nobody knows the newer one any more, and the older one holds since then.
    rows.schedules(jobs_alias).filter(name=name).update(seen_at=Now() - 2 * HOUR)
    rewind(name, 2 * HOUR)
    assert Scheduler().tick() == 1
    assert row(name).cadence == "every 3600 s"


# --- overlap -------------------------------------------------------------------------------------


def run_until(state: State) -> None:
    """Publish, and leave every live job in ``state``."""
    while relay.tick(conf.current().database):
        pass
    values = {"lease": None, "lease_expires_at": None}
    if state is State.RUNNING:
        values = {"lease": new_token(), "lease_expires_at": Now() + HOUR}
    Job.objects.filter(state__in=LIVE).update(state=state, worker="w", **values)


def next_hour(name: str) -> int:
    rewind(name, HOUR)
    return tick()


def test_overlap_allow_lets_both_run(jobs_alias: str) -> None:
    name = declared(every=600)
    armed(name, missed=timedelta(seconds=600))
    tick()
    run_until(State.RUNNING)
    rewind(name, timedelta(seconds=600))
    entries().delete()
    Job.objects.update(idempotency_key="earlier")
    assert tick() == 1
    relay.tick(jobs_alias)
    assert Job.objects.filter(state__in=LIVE).count() == 2


@pytest.mark.parametrize("state", [State.READY, State.RUNNING, State.DELAYED, State.SUSPENDED])
def test_overlap_skip_starts_nothing_beside_a_live_job(jobs_alias: str, state: State) -> None:
    name = declared(overlap="skip")
    armed(name, missed=HOUR)
    assert tick() == 1
    assert next_hour(name) == 0, "the entry has not even been published"
    run_until(state)
    assert next_hour(name) == 0
    job = Job.objects.get()
    assert [outcome for outcome, _ in told(name)] == ["fired", "skipped", "skipped"]
    reason = decisions(jobs_alias).order_by("-id")[0].reason
    assert str(job.id) in reason and "has not ended" in reason
    run_until(State.DONE)
    assert drop_keys() and next_hour(name) == 1


def drop_keys() -> int:
    """Rewound clocks repeat occurrences, which have the keys of their earlier selves."""
    return Job.objects.update(idempotency_key="earlier") + entries().delete()[0]


def test_a_cancelled_job_whose_body_runs_on_has_not_ended(jobs_alias: str) -> None:
    name = declared(overlap="skip")
    armed(name, missed=HOUR)
    tick()
    run_until(State.RUNNING)
    cancel(Job.objects.get().id)
    assert next_hour(name) == 0
    Job.objects.update(worker="")
    assert drop_keys() and next_hour(name) == 1


def test_overlap_queue_one_has_one_wait_and_runs_it_next(jobs_alias: str) -> None:
    name = declared(overlap="queue_one")
    armed(name, missed=HOUR)
    tick()
    run_until(State.RUNNING)
    assert [next_hour(name), next_hour(name)] == [0, 0]
    assert [outcome for outcome, _ in told(name)] == ["fired", "queued", "skipped"]
    assert row(name).wake_at - row(name).clock < timedelta(seconds=2)
    assert Scheduler().tick() == 0, "it runs still"
    run_until(State.DONE)
    drop_keys()
    rows.schedules(jobs_alias).update(wake_at=Now())
    assert tick() == 1 and tick() == 0
    assert [outcome for outcome, _ in told(name)] == ["fired", "fired", "skipped"]
    assert decisions(jobs_alias).order_by("id")[1].job_id == entries().get().id


def test_overlap_supersede_ends_the_earlier_one(jobs_alias: str) -> None:
    name = declared(slow, overlap="supersede", arguments={"seconds": 9.0})
    armed(name, missed=HOUR)
    tick()
    run_until(State.RUNNING)
    earlier = Job.objects.get()
    drop_keys()
    assert next_hour(name) == 1
    relay.tick(jobs_alias)
    later = Job.objects.get(state="ready")
    assert Job.objects.get(id=earlier.id).superseded_by == later.id


def test_a_caught_up_row_of_occurrences_follows_the_overlap_policy_too(jobs_alias: str) -> None:
    name = declared(missed="all", overlap="queue_one")
    armed(name, missed=4 * HOUR)
    assert tick() == 1
    assert told(name) == [("fired", 1), ("queued", 1), ("skipped", 1), ("skipped", 1)]


# --- tenants, jitter -----------------------------------------------------------------------------


def test_each_tenant_has_a_job_of_its_own_and_its_own_overlap(jobs_alias: str) -> None:
    tenants = ["a", "b", "b"]
    name = declared(
        tenanted,
        overlap="skip",
        per_tenant=lambda: tenants,
        arguments={"tenant": "{tenant}", "key": "{occurrence}"},
    )
    armed(name, missed=HOUR)
    assert tick() == 2
    relay.tick(jobs_alias)
    assert sorted(Job.objects.values_list("tenant", flat=True)) == ["a", "b"]
    Job.objects.filter(tenant="a").update(state="done", idempotency_key="earlier")
    entries().delete()
    assert next_hour(name) == 1
    assert entries().get().tenant == "a"
    last = decisions(jobs_alias).order_by("-id")[:2]
    assert {(one.tenant, one.outcome) for one in last} == {("a", "fired"), ("b", "skipped")}


def test_a_job_without_tenant_argument_is_enqueued_for_the_tenant(jobs_alias: str) -> None:
    name = declared(noop, per_tenant=lambda: ["a"])
    armed(name, missed=HOUR)
    tick()
    assert entries().get().tenant == "a"


def test_jitter_moves_the_due_time_by_the_same_each_time_and_not_the_occurrence(
    jobs_alias: str,
) -> None:
    name = declared(noop, jitter=600, per_tenant=lambda: [str(n) for n in range(20)])
    armed(name, missed=HOUR)
    assert tick() == 20
    at = row(name).watermark
    shifts = {entry.tenant: entry.run_at - at for entry in entries()}
    assert all(timedelta(0) <= shift <= timedelta(minutes=10) for shift in shifts.values())
    assert len(set(shifts.values())) > 5
    entries().delete()
    assert next_hour(name) == 20
    assert {entry.tenant: entry.run_at - row(name).watermark for entry in entries()} == shifts


# --- failures ------------------------------------------------------------------------------------


def test_a_schedule_that_fails_delays_no_other_and_its_error_is_on_its_row(
    jobs_alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Callable[[], list[str]]] = [lambda: 1 / 0]  # type: ignore[list-item, return-value]
    bad = declared(noop, name="a-bad", per_tenant=lambda: answers[0]())
    good = [declared(noop, name=f"good{number}") for number in range(3)]
    armed(bad, *good, missed=HOUR)
    before = row(bad).watermark
    assert tick() == 3
    failed = row(bad)
    assert failed.error == "ZeroDivisionError: division by zero" and failed.failures == 1
    assert failed.watermark == before and failed.wake_at > failed.clock
    assert [one.condition for one in standings()] == ["failing", "active", "active", "active"]
    for name in good:
        rewind(name, HOUR)
        entries().delete()
    assert tick() == 3, "and it is not tried again at each look"
    answers[0] = lambda: ["t"]
    rows.schedules(jobs_alias).filter(name=bad).update(wake_at=Now())
    assert tick() == 1
    assert row(bad).error == "" and row(bad).failures == 0


def test_a_tenant_that_the_job_cannot_take_fails_its_own_schedule_only(jobs_alias: str) -> None:
    bad = declared(tenanted, per_tenant=lambda: [7], arguments={"tenant": "{tenant}", "key": "x"})
    good = declared(noop)
    armed(bad, good, missed=HOUR)
    assert tick() == 1
    assert "PayloadError" in row(bad).error and "tenant" in row(bad).error
    assert told(good) == [("fired", 1)] and told(bad) == []


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_a_worker_that_stands_still_in_the_middle_keeps_others_from_its_schedule_only() -> None:
    held, free = declared(noop, name="a-held"), declared(noop, name="free")
    armed(held, free, missed=HOUR)

    def hold() -> Any:
        block = transaction.atomic()
        block.__enter__()
        rows.schedules("default").filter(name=held).update(failures=0)
        return block

    with party() as other:
        block = other.do(hold)
        scheduler, began = Scheduler(), time.monotonic()
        assert scheduler.tick() == 1 and told(free) == [("fired", 1)]
        assert scheduler.tick() == 0 and 0 < scheduler.pause() < 1
        assert time.monotonic() - began < 1
        other.do(block.__exit__, None, None, None)
    assert tick() == 1 and told(held) == [("fired", 1)]


# --- orders --------------------------------------------------------------------------------------


def test_a_paused_schedule_skips_says_why_and_makes_nothing_good(jobs_alias: str) -> None:
    name = declared(missed="all")
    armed(name)
    assert pause_schedule(name, by="ada", reason="migration")
    assert not pause_schedule(name, by="bob")
    assert [one.condition for one in standings()] == ["paused"]
    rewind(name, 3 * HOUR)
    assert tick() == 0 and not entries().exists()
    (decision,) = decisions(jobs_alias)
    assert (decision.outcome, decision.occurrences) == ("skipped", 3)
    assert decision.reason == "paused by ada: migration"
    assert decision.occurrence - decision.since == 2 * HOUR
    assert resume_schedule(name) and not resume_schedule(name)
    assert tick() == 0
    assert next_hour(name) == 1


def test_a_pause_that_comes_between_look_and_fire_holds(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = declared()
    armed(name, missed=HOUR)
    stale = row(name)
    pause_schedule(name)
    assert firing.fire_due(stale, timetables()[name]) == 0
    assert not entries().exists() and told(name) == []


def test_a_triggered_schedule_runs_now_beside_its_occurrences(jobs_alias: str) -> None:
    name = declared(anything, overlap="skip", arguments={"value": "{occurrence}"})
    (first,) = trigger_schedule(name, by="ada", reason="asked for")
    (second,) = trigger_schedule(name)
    assert first != second
    relay.tick(jobs_alias)
    assert get(first).state == get(second).state == "ready"
    decision = decisions(jobs_alias).get(job_id=first)
    assert (decision.outcome, decision.reason) == ("triggered", "by ada: asked for")
    armed(name, missed=HOUR)
    assert tick() == 0, "what was triggered has not ended"
    run_until(State.DONE)
    assert next_hour(name) == 1


def test_a_trigger_exists_exactly_if_its_transaction_commits(jobs_alias: str) -> None:
    name = declared()
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=jobs_alias):
        trigger_schedule(name)
        raise ZeroDivisionError
    assert not entries().exists() and told(name) == []


def test_looking_ahead_goes_by_the_databases_clock_in_the_schedules_zone(jobs_alias: str) -> None:
    name = declared(noop, "30 9 * * *", tz="Asia/Kolkata")
    ahead = look_ahead(name, 3)
    assert [(at.hour, at.minute, at.utcoffset()) for at in ahead] == [
        (9, 30, timedelta(hours=5, minutes=30))
    ] * 3
    assert [one.condition for one in standings(3)] == ["unseen"]
    assert standings(3)[0].ahead == ahead
    armed(name)
    assert row(name).clock < ahead[0] < ahead[1] < ahead[2]


def test_a_schedule_that_nobody_declares_is_an_orphan_and_is_not_due(jobs_alias: str) -> None:
    name = declared()
    armed(name, missed=HOUR)
    registered._timetables.clear()
    other = declared(record, arguments={"key": "x"})
    assert tick() == 0
    assert {one.name: one.condition for one in standings()}[name] == "elsewhere"
    rows.schedules(jobs_alias).filter(name=name).update(seen_at=Now() - HOUR)
    assert {one.name: one.condition for one in standings()} == {name: "orphaned", other: "active"}
    assert pause_schedule(name)
    for order in (trigger_schedule, look_ahead):
        with pytest.raises(ScheduleNotFound, match="declares no schedule"):
            order(name)
    with pytest.raises(ScheduleNotFound, match="no schedule 'nonsense'"):
        pause_schedule("nonsense")


# --- cost and care -------------------------------------------------------------------------------


def test_with_1000_schedules_a_look_at_nothing_due_is_two_statements(jobs_alias: str) -> None:
    for number in range(1000):
        declared(noop, name=f"s{number}")
    scheduler = Scheduler()
    scheduler.tick()
    rows.schedules(jobs_alias).update(wake_at=Now() + HOUR)
    scheduler._look_at = 0.0
    with CaptureQueriesContext(connections[jobs_alias]) as asked:
        assert scheduler.tick() == 0
    assert len(asked) <= 2
    with CaptureQueriesContext(connections[jobs_alias]) as asked:
        assert scheduler.tick() == 0
    assert len(asked) == 0, "nothing can be due before its pause is over"
    assert 0 < scheduler.pause() <= 5


def test_it_sleeps_until_the_next_occurrence_and_never_spins(jobs_alias: str) -> None:
    name = declared()
    scheduler = Scheduler()
    scheduler.tick()
    for left in (0.001, 0.2, 3.0):
        rows.schedules(jobs_alias).filter(name=name).update(wake_at=Now() + timedelta(seconds=left))
        scheduler._look_at = 0.0
        if scheduler.tick() == 0 and scheduler.pause():
            assert scheduler.pause() <= max(left, HELD_PAUSE)


def test_old_decisions_are_pruned_but_not_of_jobs_that_have_not_ended(jobs_alias: str) -> None:
    ended, live = (
        declared(noop, overlap="skip"),
        declared(record, arguments={"key": "x"}, overlap="skip"),
    )
    armed(ended, live, missed=HOUR)
    tick()
    while relay.tick(jobs_alias):
        pass
    Job.objects.filter(name=ended).update(state="done")
    decisions(jobs_alias).update(decided_at=Now() - timedelta(days=365))
    janitor.tick()
    assert [one.schedule for one in decisions(jobs_alias)] == [live]
    assert next_hour(live) == 0
