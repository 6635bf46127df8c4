"""A step runs once; its result, or its end, is what every later attempt finds."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from django_jobs import Retry, Terminal, current_job, step
from django_jobs.errors import JobTimeout, NoCurrentJob, StepFailed
from django_jobs.models import Job
from tests.app.tasks import done
from tests.steps.stepping import again, effects, run, state, steps, stored


class Broken(Exception):
    """Raised by bodies on purpose, to have another attempt."""


class Declined(Exception):
    """Raised by a step."""


def fail_once() -> None:
    if current_job().attempt == 1:
        raise Broken


def test_a_completed_step_is_not_run_again_and_returns_what_it_returned(jobs_alias: str) -> None:
    seen = []

    def body() -> str:
        seen.append(step.run("a", done, "a"))
        seen.append(step.run("b", done, text="b"))
        fail_once()
        return step.run("c", done, "c")

    job, _ = run(body)
    assert (state(job), effects()) == ("delayed", ["a", "b"])
    again()
    assert state(job) == "done"
    assert effects() == ["a", "b", "c"]
    assert seen == ["a", "b", "a", "b"]
    assert steps(job) == {"a": "done", "b": "done", "c": "done"}
    assert stored(job, "a").attempts == 1


NOTHINGS: list[Any] = [None, False, 0, "", [], {}]


@pytest.mark.parametrize("value", NOTHINGS, ids=repr)
def test_a_step_that_returned_next_to_nothing_has_run_all_the_same(
    jobs_alias: str, value: Any
) -> None:
    seen = []

    def nothing() -> Any:
        done("ran")
        return value

    def body() -> None:
        seen.append(step.run("a", nothing))
        fail_once()

    run(body)
    again()
    assert effects() == ["ran"]
    assert seen == [value, value]


def typed() -> tuple[dt.datetime, Decimal, uuid.UUID, dict[int, str]]:
    now = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    return now, Decimal("1.10"), uuid.UUID(int=7), {1: "one"}


def untyped():  # type: ignore[no-untyped-def]
    return {"when": dt.date(2026, 1, 2), "pair": (1, 2), "big": 1e22, "z": 1, "a": 2}


def test_a_result_has_the_same_form_the_first_time_and_on_replay(jobs_alias: str) -> None:
    seen = []

    def body() -> None:
        seen.append((step.run("typed", typed), step.run("untyped", untyped)))
        fail_once()

    run(body)
    again()
    assert repr(seen[0]) == repr(seen[1])
    assert seen[0][0] == typed()
    assert seen[0][1] == {"when": "2026-01-02", "pair": [1, 2], "big": 1e22, "z": 1, "a": 2}
    # Outside a worker too, so that a unit test meets what production does.
    assert repr((step.run("typed", typed), step.run("untyped", untyped))) == repr(seen[0])


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "an object": object,
    "a NUL": lambda: "a\x00b",
    "not a number": lambda: {"x": float("nan")},
    "too large": lambda: "x" * 2_000_000,
}


@pytest.mark.parametrize("what", UNSTORABLE)
def test_a_result_that_cannot_be_stored_ends_the_job_and_is_not_tried_again(
    jobs_alias: str, what: str
) -> None:
    def effect() -> Any:
        done("ran")
        return UNSTORABLE[what]()

    job, _ = run(lambda: step.run("a", effect))
    again()
    assert state(job) == "dead"
    assert effects() == ["ran"]
    assert steps(job) == {"a": "failed"}


def test_a_step_that_fails_runs_again_with_the_next_attempt_and_the_others_do_not(
    jobs_alias: str,
) -> None:
    def flaky() -> str:
        done("flaky")
        fail_once()
        return "ok"

    def body() -> None:
        step.run("a", done, "a")
        step.run("flaky", flaky)
        step.run("c", done, "c")

    job, [ran] = run(body)
    assert "Broken" in ran.error
    assert steps(job) == {"a": "done", "flaky": "retrying"}
    assert (stored(job, "flaky").attempts, stored(job, "flaky").error_class) == (
        1,
        f"{__name__}.Broken",
    )
    again()
    assert (state(job), effects()) == ("done", ["a", "flaky", "flaky", "c"])
    assert stored(job, "flaky").attempts == 2


@pytest.mark.parametrize("error", [OperationalError("mine"), ConnectionError("mine")])
def test_an_error_of_the_body_that_looks_like_the_database_s_is_the_body_s(
    jobs_alias: str, error: Exception
) -> None:
    def fails() -> None:
        done("ran")
        raise error

    job, [ran] = run(lambda: step.run("a", fails))
    assert ran.error.endswith(": mine")
    assert (state(job), effects()) == ("delayed", ["ran"])


def test_a_failure_that_the_body_caught_and_went_on_from_is_decided(jobs_alias: str) -> None:
    def charge() -> str:
        done("charge")
        if len(effects()) == 1:
            raise Declined("no funds")
        return "charged"

    def body() -> str:
        try:
            step.run("charge", charge)
            step.run("ship", done, "ship")
        except Declined as error:
            assert str(error) == "no funds"
            step.run("tell", done, "tell")
        fail_once()
        return "told"

    job, _ = run(body)
    assert steps(job) == {"charge": "failed", "tell": "done"}
    again()
    assert (state(job), effects()) == ("done", ["charge", "tell"])


def test_a_stored_failure_whose_class_is_gone_is_a_step_failure(jobs_alias: str) -> None:
    class Local(Exception):
        """Not to be found by its name."""

    def fails() -> None:
        raise Local("why")

    def body() -> None:
        try:
            step.run("a", fails)
        except (Local, StepFailed) as error:
            step.run(f"caught {type(error).__name__}", done, str(error))
        fail_once()

    run(body)
    again()
    assert len(effects()) == 2
    assert "Local: why" in effects()[1]


def test_a_step_with_a_retry_of_its_own_uses_none_of_the_job_s_attempts(jobs_alias: str) -> None:
    def flaky() -> str:
        done("try")
        if len(effects()) < 4:
            raise Broken
        return "ok"

    def body() -> Any:
        return step.run("a", flaky, retry=Retry(max_attempts=5, base=2, jitter=False))

    job, _ = run(body)
    assert (state(job), steps(job)) == ("suspended", {"a": "retrying"})
    again(seconds=1)  # Woken early, it waits on.
    assert len(effects()) == 1
    for _ in range(3):
        again(seconds=60)
    assert (state(job), len(effects()), stored(job, "a").attempts) == ("done", 4, 4)
    assert Job.objects.get(id=job.id).attempt == 1


def test_a_step_that_used_up_its_own_attempts_ends_the_job(jobs_alias: str) -> None:
    def fails() -> None:
        done("try")
        raise Broken("for good")

    def body() -> None:
        step.run("a", fails, retry=Retry(max_attempts=2, base=1, jitter=False))

    job, _ = run(body)
    [ran] = again()
    assert "for good" in ran.error
    assert (state(job), effects(), steps(job)) == ("dead", ["try", "try"], {"a": "failed"})


def test_a_terminal_error_is_the_end_of_its_step(jobs_alias: str) -> None:
    def fails() -> None:
        raise Terminal("no use")

    job, _ = run(lambda: step.run("a", fails))
    assert (state(job), steps(job)) == ("dead", {"a": "failed"})


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "twice": (lambda: [step.run("a", done, "1"), step.run("a", done, "2")], "name of its own"),
    "no name": (lambda: step.run("", done, "1"), "short text"),
    "long name": (lambda: step.run("x" * 201, done, "1"), "short text"),
    "NUL": (lambda: step.run("a\x00", done, "1"), "short text"),
    "not callable": (lambda: step.run("a", "done"), "the function itself"),  # type: ignore[arg-type]
    "timeout": (lambda: step.run("a", done, "1", timeout=0), "above 0"),
    "retry": (lambda: step.run("a", done, "1", retry=3), "Retry"),  # type: ignore[arg-type]
    "sleep": (lambda: step.sleep("a", -1), "seconds"),
    "race": (lambda: step.first("a", only=step.Timer(1)), "two or more"),
    "job": (lambda: step.wait_for_jobs("a", ["nonsense"]), "no job"),
    "match": (lambda: step.wait_for_event("a", match=""), "plain text"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_call_ends_the_job_and_says_how_to_mend_it(jobs_alias: str, what: str) -> None:
    call, says = WRONG[what]
    job, [ran] = run(call)
    assert state(job) == "dead"
    assert says in ran.error
    assert "errors.Step" in ran.error


def test_a_stored_name_keeps_its_kind(jobs_alias: str) -> None:
    def before() -> None:
        step.run("a", done, "a")
        raise Broken

    job, _ = run(before)
    [ran] = again(lambda: step.sleep("a", 5))
    assert "StepKindChanged" in ran.error
    assert "new name" in ran.error
    assert state(job) == "dead"


def test_a_new_step_before_stored_ones_runs_and_the_stored_ones_do_not(jobs_alias: str) -> None:
    def before() -> None:
        step.run("a", done, "a")
        raise Broken

    def after() -> None:
        step.run("new", done, "new")
        step.run("a", done, "a")

    job, _ = run(before)
    again(after)
    assert (state(job), effects()) == ("done", ["a", "new"])
    assert steps(job) == {"a": "done", "new": "done"}


def test_five_hundred_steps_are_read_in_one_statement(jobs_alias: str) -> None:
    def body() -> None:
        for number in range(500):
            step.run(f"step {number}", int, number)
        if current_job().attempt == 1:
            raise Broken
        queries.append(len(connections[jobs_alias].queries_log))
        connections[jobs_alias].force_debug_cursor = False

    queries: list[int] = []
    job, _ = run(body)
    stored_body = body

    def counted() -> None:
        connections[jobs_alias].force_debug_cursor = True
        connections[jobs_alias].queries_log.clear()
        stored_body()

    again(counted)
    assert state(job) == "done"
    assert queries == [1]


def test_a_step_costs_one_statement(jobs_alias: str) -> None:
    counts = []

    def body() -> None:
        connection = connections[jobs_alias]
        step.run("first", int, 1)  # It loads what is stored, too.
        connection.force_debug_cursor = True
        connection.queries_log.clear()
        step.run("plain", int, 1)
        counts.append([query["sql"] for query in connection.queries_log])
        connection.force_debug_cursor = False

    run(body)
    assert len(counts[0]) == 1


def test_a_step_within_a_callers_transaction_is_refused(jobs_alias: str) -> None:
    def body() -> None:
        with transaction.atomic(using=jobs_alias):
            step.run("a", done, "a")

    job, [ran] = run(body)
    assert state(job) == "dead"
    assert "StepRefused" in ran.error
    assert "atomic=True" in ran.error
    assert effects() == []


@pytest.mark.parametrize("call", [lambda: step.sleep("a", 5), lambda: step.wait_for_event("a")])
def test_nothing_waits_inside_a_fence(jobs_alias: str, call: Callable[[], Any]) -> None:
    def body() -> None:
        with current_job().atomic():
            done("a")
            call()

    job, [ran] = run(body)
    assert "StepRefused" in ran.error
    assert (state(job), effects(), steps(job)) == ("dead", [], {})


def test_a_swallowed_suspension_is_still_one(jobs_alias: str) -> None:
    def body() -> str:
        try:
            step.sleep("a", 5)
        except BaseException:
            done("swallowed")
        return "done?"

    job, _ = run(body)
    assert state(job) == "suspended"
    stepped, _ = run(lambda: (body(), step.run("next", done, "next")))
    assert (state(stepped), effects()) == ("suspended", ["swallowed", "swallowed"])


def test_a_step_out_of_time_fails_its_attempt(jobs_alias: str) -> None:
    def slow() -> None:
        while True:
            current_job().check()

    def body() -> None:
        if current_job().attempt == 1:
            step.run("a", slow, timeout=0.05)
        step.run("b", done, "b", timeout=5)

    job, [ran] = run(body)
    assert "StepTimeout: step 'a'" in ran.error
    again()
    assert (state(job), effects()) == ("done", ["b"])
    assert issubclass(step.running.StepTimeout, JobTimeout)


def test_outside_a_worker_steps_are_plain_calls(jobs_alias: str) -> None:
    assert step.run("a", done, "a") == "a"
    assert step.run("a", done, "a") == "a"
    step.sleep(3600)
    assert step.parallel(lambda: 1, lambda: "b") == (1, "b")
    with pytest.raises(NoCurrentJob, match="drain"):
        step.wait_for_event("a")
    assert effects() == ["a", "a"]


def test_in_a_worker_without_a_current_job_a_step_is_an_error(monkeypatch: Any) -> None:
    monkeypatch.setattr("django_jobs.current._in_worker_process", True)
    with pytest.raises(NoCurrentJob, match="wrap"):
        step.run("a", int)


def test_a_run_whose_steps_another_version_stored_is_parked(jobs_alias: str) -> None:
    from tests.app.tasks import stepping as definition

    def body() -> None:
        step.run("a", done, "a")
        fail_once()

    job, _ = run(body)
    try:
        definition.versions = ("2",)
        again()
        assert state(job) == "suspended"
        row = Job.objects.get(id=job.id)
        assert "stored by version ''" in row.reason
        assert row.attempt == 1
        definition.versions = ("2", "")
        again(seconds=60)
    finally:
        definition.versions = ("",)
    assert (state(job), effects()) == ("done", ["a"])
