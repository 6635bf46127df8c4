"""Sleeps, events, races and child jobs: the worker is free, and every decision is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from django_jobs import cancel, emit, enqueue, get, step
from django_jobs.errors import EmitRefused, KeyRefused, OtherDatabaseOpen
from django_jobs.loops import janitor, waker
from django_jobs.models import Event, Job, Step
from django_jobs.testing import advance, drain
from tests.app import tasks
from tests.app.jobs import noop, record, terminal
from tests.app.tasks import done, tenanted_stepping
from tests.rows.parties import party
from tests.steps.stepping import again, begin, effects, run, state, steps, stored
from tests.steps.test_running import fail_once


def test_a_sleep_frees_the_worker_and_goes_on_when_it_is_over(jobs_alias: str) -> None:
    def body() -> None:
        step.run("a", done, "a")
        step.sleep("pause", 60)
        step.run("b", done, "b")

    job, _ = run(body)
    row = Job.objects.get(id=job.id)
    assert (state(job), row.attempt, row.reason) == ("suspended", 0, "sleeps: step 'pause'")
    wake_at = stored(job, "pause").wake_at
    assert wake_at is not None and 0 <= (row.run_at - wake_at).total_seconds() < 2
    Job.objects.update(run_at=Now())  # Woken early, it sleeps on, until the same time.
    drain()
    assert effects() == ["a"]
    assert stored(job, "pause").wake_at == wake_at
    again(seconds=61)
    assert (state(job), effects()) == ("done", ["a", "b"])
    assert steps(job) == {"a": "done", "pause": "done", "b": "done"}


def test_sleeps_without_a_name_are_numbered(jobs_alias: str) -> None:
    def body() -> None:
        for _ in range(3):
            step.sleep(5)
        step.sleep(6)
        step.sleep(0)

    job, _ = run(body)
    for _ in range(4):
        again(seconds=6.5)
    assert state(job) == "done"
    assert list(steps(job)) == ["sleep 5 s", "sleep 5 s#2", "sleep 5 s#3", "sleep 6 s", "sleep 0 s"]


def test_fifty_sleeps_use_no_attempt(jobs_alias: str) -> None:
    def body() -> None:
        for _ in range(50):
            step.sleep(1)

    job, _ = run(body)
    for _ in range(50):
        again(seconds=2)
    assert state(job) == "done"
    assert Job.objects.get(id=job.id).attempt == 1


# --- events ----------------------------------------------------------------------------------


def waits(**options: Any) -> Callable[[], Any]:
    def body() -> Any:
        value = step.wait_for_event("approved", **options)
        step.run("told", done, repr(value))
        return value

    return body


def test_an_event_wakes_the_run_that_waits_for_it(jobs_alias: str) -> None:
    job, _ = run(waits())
    assert state(job) == "suspended"
    emit("approved", {"by": "ann"})
    drain()
    assert (state(job), get(job.id).result) == ("done", {"by": "ann"})
    assert steps(job) == {"approved": "done", "told": "done"}


def test_an_event_that_came_before_the_wait_is_found_but_not_one_before_the_job(
    jobs_alias: str,
) -> None:
    emit("approved", "too early")
    Event.objects.update(emitted_at=F("emitted_at"))
    job = begin(waits())
    emit("approved", "in time")
    emit("approved", "second")
    drain()
    assert get(job.id).result == "in time"


def test_an_event_from_before_the_job_that_nobody_has_looked_at_is_not_given_to_a_wait(
    jobs_alias: str,
) -> None:
    def emitted_earlier() -> None:
        emit("approved", "too early")
        Event.objects.update(emitted_at="2020-01-01T00:00:00Z")

    def body() -> Any:
        step.run("emit", emitted_earlier)
        return step.wait_for_event("approved")

    job, _ = run(body)
    assert state(job) == "suspended"
    assert not Event.objects.filter(matched_at=None).exists()


def test_an_event_that_one_wait_took_before_anybody_looked_is_not_given_to_the_next(
    jobs_alias: str,
) -> None:
    def body() -> list[int]:
        step.run("emit", emit, "item", 1)
        return [step.wait_for_event(name, "item", type=int) for name in ("one", "two")]

    job, _ = run(body)
    assert steps(job) == {"emit": "done", "one": "done", "two": "waiting"}
    emit("item", 2)
    drain()
    assert get(job.id).result == [1, 2]


def test_two_waits_for_one_event_take_two_events(jobs_alias: str) -> None:
    def body() -> list[int]:
        return [step.wait_for_event(f"item {n}", "item", type=int) for n in range(3)]

    job = begin(body)
    emit("item", 1)
    emit("item", 2)
    drain()
    assert state(job) == "suspended"
    assert steps(job) == {"item 0": "done", "item 1": "done", "item 2": "waiting"}
    emit("item", 3)
    drain()
    assert get(job.id).result == [1, 2, 3]


def test_an_event_must_match_and_one_wakes_all_who_wait(jobs_alias: str) -> None:
    seven, eight, anyone = (run(waits(match=match))[0] for match in (7, "8", None))
    emit("other", match=8)
    emit("approved", "for 8", match="8")
    drain()
    assert [state(job) for job in (seven, eight, anyone)] == ["suspended", "done", "done"]
    assert get(anyone.id).result == "for 8"


def test_an_event_is_seen_by_its_own_tenant_only(jobs_alias: str) -> None:
    mine = begin(waits(), tenanted_stepping, "mine")
    drain()
    yours = begin(waits(), tenanted_stepping, "yours")
    drain()
    emit("approved", "nobody's")
    emit("approved", "yours", tenant="yours")
    drain()
    assert (state(mine), get(yours.id).result) == ("suspended", "yours")


def test_an_event_of_a_body_belongs_to_its_tenant(jobs_alias: str) -> None:
    begin(lambda: emit("approved", "from a body"), tenanted_stepping, "mine")
    drain()
    assert Event.objects.get().tenant == "mine"


def test_an_answer_that_a_run_does_not_take_wakes_it_once(jobs_alias: str) -> None:
    def without_the_wait() -> None:
        step.sleep("instead", 60)

    job, _ = run(waits())
    emit("approved", 1)
    tasks.body = without_the_wait
    assert len(drain(limit=10)) == 1
    assert (state(job), steps(job)["approved"]) == ("suspended", "woken")


def test_a_run_that_waited_sees_the_same_payload_on_every_replay(jobs_alias: str) -> None:
    def body() -> Any:
        value = step.wait_for_event("approved")
        fail_once()
        return value

    job = begin(body)
    emit("approved", 1)
    drain()
    emit("approved", 2)
    again()
    assert get(job.id).result == 1


@pytest.mark.parametrize("default", [None, "nobody answered"])
def test_a_timeout_with_a_default_is_decided_for_good(jobs_alias: str, default: Any) -> None:
    def body() -> Any:
        value = step.wait_for_event("approved", timeout=30, default=default)
        step.run("told", done, repr(value))
        fail_once()
        return value

    job, _ = run(body)
    again(seconds=31)
    assert steps(job) == {"approved": "timed_out", "told": "done"}
    emit("approved", "too late")
    again()
    assert (get(job.id).result, effects()) == (default, [repr(default)])


def test_a_timeout_without_a_default_ends_the_job(jobs_alias: str) -> None:
    job, _ = run(waits(timeout=30))
    [ran] = again(seconds=31)
    assert "WaitTimeout" in ran.error
    assert "'approved' did not come in time" in ran.error
    assert state(job) == "dead"


def test_an_event_in_the_last_moment_beats_the_timeout(jobs_alias: str) -> None:
    job, _ = run(waits(timeout=30))
    emit("approved", "just in time")
    advance(31)  # Due by time and by event.
    drain()
    assert get(job.id).result == "just in time"


def test_an_expired_event_counts_no_more_and_is_deleted(jobs_alias: str) -> None:
    job = begin(waits())
    emit("approved", "old", expires=60)
    advance(61)
    drain()
    assert state(job) == "suspended"
    assert Event.objects.count() == 1
    janitor.tick()
    assert Event.objects.count() == 0


def test_an_answer_survives_its_event(jobs_alias: str) -> None:
    job, _ = run(waits())
    emit("approved", "short", expires=60)
    waker.answer()
    advance(61)
    janitor.tick()
    drain()
    assert get(job.id).result == "short"


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "no name": (lambda: emit(""), KeyRefused),
    "NUL": (lambda: emit("a\x00"), KeyRefused),
    "payload": (lambda: emit("a", object()), EmitRefused),
    "payload NUL": (lambda: emit("a", "\x00"), EmitRefused),
    "match": (lambda: emit("a", match="\x00"), KeyRefused),
    "tenant": (lambda: emit("a", tenant="x" * 201), KeyRefused),
    "expires": (lambda: emit("a", expires=0), EmitRefused),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_emit_is_refused_before_anything_is_written(jobs_alias: str, what: str) -> None:
    call, error = REFUSED[what]
    with transaction.atomic(using=jobs_alias):
        done("mine")
        with pytest.raises(error):
            call()
    assert effects() == ["mine"]
    assert not Event.objects.exists()


def test_an_event_exists_exactly_if_its_transaction_committed(jobs_alias: str) -> None:
    job, _ = run(waits())
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=jobs_alias):
        emit("approved", "rolled back")
        raise ZeroDivisionError
    drain()
    assert state(job) == "suspended"
    with transaction.atomic(using=jobs_alias):
        emit("approved", "committed")
    drain()
    assert get(job.id).result == "committed"


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_an_event_is_refused_in_a_transaction_of_another_database() -> None:
    with pytest.raises(OtherDatabaseOpen, match="on_commit"), transaction.atomic(using="other"):
        emit("approved")


@pytest.mark.django_db(transaction=True, databases="__all__")
@pytest.mark.parametrize("commits", ["before the wait", "before the suspension", "after it"])
def test_an_event_that_passes_the_wait_is_not_lost(commits: str, monkeypatch: Any) -> None:
    """The emitter's transaction is open the whole time, and commits at the named moment."""
    from django_jobs.models import JobQuerySet, OwnRows

    job = begin(waits())
    suspend, find = JobQuerySet.suspend, OwnRows.find_event
    with party() as emitter:
        emitter.do(transaction.set_autocommit, False)
        emitter.do(lambda: emit("approved", "met"))

        def commit() -> None:
            emitter.do(transaction.commit)
            waker.answer()  # Another process looks at it at once.

        def found(*arguments: Any) -> Any:
            if commits == "before the wait":
                commit()
            answer = find(*arguments)
            if commits == "before the suspension":
                commit()
            return answer

        def suspended(*arguments: Any) -> Any:
            done_ = suspend(*arguments)
            if commits == "after it":
                commit()
            return done_

        monkeypatch.setattr(OwnRows, "find_event", found)
        monkeypatch.setattr(JobQuerySet, "suspend", suspended)
        drain()
        emitter.do(transaction.set_autocommit, True)
    assert get(job.id).result == "met"


# --- races -----------------------------------------------------------------------------------


def race(**extra: Any) -> Callable[[], Any]:
    def body() -> Any:
        won = step.first("answer", yes=step.Event("approved"), late=step.Timer(60), **extra)
        step.run("told", done, f"{won.name}: {won.value}")
        fail_once()
        return won.name

    return body


def test_the_first_of_a_race_is_stored_and_the_others_wait_no_more(jobs_alias: str) -> None:
    job, _ = run(race())
    assert state(job) == "suspended"
    emit("approved", 1)
    drain()
    again(seconds=120)
    assert (get(job.id).result, effects()) == ("yes", ["yes: 1"])
    assert steps(job) == {
        "answer": "done",
        "answer/yes": "done",
        "answer/late": "closed",
        "told": "done",
    }
    assert not Step.objects.using(jobs_alias).filter(status="waiting").exists()


def test_a_timer_wins_a_race_and_a_later_event_changes_nothing(jobs_alias: str) -> None:
    job, _ = run(race())
    again(seconds=61)
    emit("approved", 1)
    again()
    assert (get(job.id).result, effects()) == ("late", ["late: None"])


def test_a_job_wins_a_race(jobs_alias: str) -> None:
    child = enqueue(record.using(delay=30), "child")
    job, _ = run(race(child=step.JobEnds(child)))
    again(seconds=31)
    again()
    assert get(job.id).result == "child"
    assert effects()[-1].startswith("child: JobEnd(id=")


# --- children --------------------------------------------------------------------------------


def test_a_parent_goes_on_when_all_its_jobs_have_ended(jobs_alias: str) -> None:
    def children() -> list[str]:
        made = [record.enqueue("a"), record.using(delay=20).enqueue("b"), terminal.enqueue()]
        return [str(child.id) for child in made]

    def body() -> list[str]:
        ends = step.wait_for_jobs("children", step.run("enqueue", children))
        return [f"{end.state} {end.result}" for end in ends]

    job, _ = run(body)
    assert state(job) == "suspended"
    assert steps(job)["children"] == "waiting"
    again(seconds=21)
    assert get(job.id).result == ["done a", "done b", "dead None"]


def test_a_deduplicated_cancelled_or_pruned_child_ends_the_wait_too(jobs_alias: str) -> None:
    live = enqueue(record.using(delay=50), "same")
    with transaction.atomic(using=jobs_alias):
        Job.objects.filter(id=live.id).update(name="hidden")  # So that it is staged, then deduped.
        deduped = enqueue(record, "same")
        Job.objects.filter(id=live.id).update(name=record.name)
    cancelled = enqueue(noop.using(delay=500))
    pruned = enqueue(noop)
    drain()
    Job.objects.filter(id=pruned.id).delete()
    ids = [deduped.id, cancelled.id, pruned.id]

    def body() -> list[Any]:
        ends = step.wait_for_jobs("children", ids)
        return [[end.state, str(end.id)] for end in ends]

    job, _ = run(body)
    cancel(cancelled.id)
    drain()
    assert state(job) == "suspended"
    again(seconds=51)
    assert get(job.id).result == [
        ["done", str(live.id)],
        ["cancelled", str(cancelled.id)],
        ["pruned", str(pruned.id)],
    ]


def test_a_staged_child_is_waited_for_through_its_publication(jobs_alias: str) -> None:
    def body() -> Any:
        def child() -> str:
            return str(record.enqueue("staged").id)

        if jobs_alias == "default":
            ids = [step.run("enqueue", child, atomic=True)]
        else:
            ids = [step.run("enqueue", child)]
        return [end.result for end in step.wait_for_jobs("children", ids)]

    job, _ = run(body)
    for _ in range(2):
        again(seconds=2)
    assert get(job.id).result == ["staged"]


# --- parallel --------------------------------------------------------------------------------


def test_all_branches_settle_before_the_run_suspends(jobs_alias: str) -> None:
    def one() -> str:
        step.run("one a", done, "one a")
        step.sleep("one sleeps", 30)
        return step.run("one b", done, "one b")

    def two() -> int:
        step.run("two", done, "two")
        return 2

    def body() -> list[Any]:
        both = step.parallel(one, two)
        step.run("after", done, "after")
        return list(both)

    job, _ = run(body)
    assert (state(job), effects()) == ("suspended", ["one a", "two"])
    again(seconds=31)
    assert get(job.id).result == ["one b", 2]
    assert effects() == ["one a", "two", "one b", "after"]


def test_a_branch_that_fails_lets_the_others_finish_and_is_not_taken_for_caught(
    jobs_alias: str,
) -> None:
    def flaky() -> None:
        step.run("flaky", fail_once)

    def body() -> None:
        step.parallel(flaky, lambda: step.run("fine", done, "fine"))
        step.run("after", done, "after")

    job, [ran] = run(body)
    assert "Broken" in ran.error
    assert steps(job) == {"flaky": "retrying", "fine": "done"}
    again()
    assert (state(job), effects()) == ("done", ["fine", "after"])


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_branches_on_threads_run_at_the_same_time() -> None:
    import threading

    meeting = threading.Barrier(3, timeout=10)

    def branch(number: int) -> Callable[[], str]:
        def meet() -> str:
            meeting.wait()
            return done(str(number))

        return lambda: step.run(f"branch {number}", meet)

    def body() -> list[str]:
        return list(step.parallel(*(branch(n) for n in range(3)), threads=3))

    job, _ = run(body)
    assert get(job.id).result == ["0", "1", "2"]
    assert sorted(effects()) == ["0", "1", "2"]


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_replayed_branches_on_threads_read_what_is_stored_before_any_of_them_runs() -> None:
    def body() -> None:
        branches = [lambda n=n: step.run(f"branch {n}", done, str(n)) for n in range(4)]
        step.parallel(*branches, threads=4)
        fail_once()

    job, _ = run(body)
    again()
    assert (state(job), sorted(effects())) == ("done", ["0", "1", "2", "3"])


def test_pruning_a_job_deletes_its_steps(jobs_alias: str) -> None:
    job, _ = run(lambda: step.run("a", done, "a"))
    kept, _ = run(lambda: step.run("a", done, "a"))
    Job.objects.filter(id=job.id).update(finished_at="2020-01-01T00:00:00Z")
    janitor.tick()
    assert steps(job) == {}
    assert steps(kept) == {"a": "done"}
