"""Deadlines of whole jobs, and retries from a step."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.functions import Now

from django_jobs import PER_CALL, current_job, emit, get, job, retry, step
from django_jobs.errors import DeclarationError, NotRetryable
from django_jobs.models import Attempt, Job
from django_jobs.testing import drain
from tests.app import tasks
from tests.app.tasks import done
from tests.steps.stepping import again, begin, effects, run, state, steps
from tests.steps.test_running import Broken


@pytest.fixture
def deadline(monkeypatch: Any) -> float:
    """The job ``stepping`` has one for the time of the test, in seconds."""
    monkeypatch.setattr(tasks.stepping, "deadline", 30.0)
    return 30.0


def started_ago(id_: Any, seconds: float) -> None:
    from datetime import timedelta

    Job.objects.filter(id=id_).update(started_at=Now() - timedelta(seconds=seconds))


def test_a_job_that_is_suspended_over_and_over_ends_at_its_deadline(
    jobs_alias: str, deadline: float
) -> None:
    def body() -> None:
        for number in range(100):
            step.sleep(20)
            step.run(f"effect {number}", done, str(number))

    begun, _ = run(body)
    started_ago(begun.id, 21)
    again(seconds=21)
    # The second sleep is cut off at the deadline, so that the job ends then and not later.
    started_ago(begun.id, 31)
    [ran] = again(seconds=10)
    assert "DeadlinePassed" in ran.error
    assert (state(begun), effects()) == ("dead", ["0"])


def test_a_job_that_waited_for_its_first_start_has_its_whole_time(
    jobs_alias: str, deadline: float
) -> None:
    begun = begin(lambda: current_job().remaining)
    Job.objects.update(created_at="2020-01-01T00:00:00Z")
    drain()
    assert 25 < get(begun.id).result <= 30


def test_an_attempt_learns_that_the_deadline_passed(jobs_alias: str, deadline: float) -> None:
    def body() -> None:
        current_job().job_deadline = current_job().deadline = 0.001
        current_job().check()

    begun, [ran] = run(body)
    assert "DeadlinePassed" in ran.error
    assert state(begun) == "dead"  # Attempts are left, and would not help.


def test_a_retry_gives_a_job_its_whole_time_again(jobs_alias: str, deadline: float) -> None:
    begun = begin(lambda: "in time")
    Job.objects.update(started_at="2020-01-01T00:00:00Z")
    drain()
    assert state(begun) == "dead"
    retry(begun.id)
    drain()
    assert get(begun.id).result == "in time"


@pytest.mark.parametrize("value", [0, -1, "soon", True])
def test_a_deadline_that_cannot_work_is_refused(value: Any) -> None:
    def fn() -> None:
        """Not a job."""

    with pytest.raises(DeclarationError, match="deadline="):
        job(idempotency_key=PER_CALL, name="x", deadline=value)(fn)


@pytest.mark.parametrize("value", [(), "x" * 51, (1,), "a\x00"])
def test_a_version_that_cannot_work_is_refused(value: Any) -> None:
    def fn() -> None:
        """Not a job."""

    with pytest.raises(DeclarationError, match="version="):
        job(idempotency_key=PER_CALL, name="x", version=value)(fn)


def three(fails: bool) -> Any:
    def body() -> None:
        for name in "abc":
            step.run(name, done, name)
        if fails:
            raise Broken

    return body


def killed(body: Any) -> Any:
    begun, _ = run(body)
    again()
    again()
    assert state(begun) == "dead"
    assert Attempt.objects.using(Job.objects.all().db).filter(job_id=begun.id).count() == 3
    return begun


def test_a_retry_keeps_completed_steps(jobs_alias: str) -> None:
    begun = killed(three(fails=True))
    retry(begun.id)
    again(three(fails=False))
    assert (state(begun), effects()) == ("done", ["a", "b", "c"])


def test_a_retry_from_a_step_runs_it_and_the_later_ones_again(jobs_alias: str) -> None:
    begun = killed(three(fails=True))
    retry(begun.id, from_step="b")
    assert steps(begun) == {"a": "done"}
    again(three(fails=False))
    assert (state(begun), effects()) == ("done", ["a", "b", "c", "b", "c"])


def test_a_retry_from_a_race_forgets_its_branches(jobs_alias: str) -> None:
    def body() -> str:
        return step.first("race", yes=step.Event("yes"), late=step.Timer(5)).name

    begun, _ = run(body)
    again()
    assert get(begun.id).result == "late"
    retry(begun.id, from_step="race", force=True)
    emit("yes")
    drain()
    assert get(begun.id).result == "yes"


def test_a_retry_from_an_unknown_step_names_the_known_ones_and_changes_nothing(
    jobs_alias: str,
) -> None:
    begun = killed(three(fails=True))
    with pytest.raises(NotRetryable, match="'a', 'b', 'c'"):
        retry(begun.id, from_step="nonsense")
    assert state(begun) == "dead"
    assert len(steps(begun)) == 3


def test_a_refused_retry_forgets_no_step(jobs_alias: str) -> None:
    begun = begin(three(fails=False))
    drain()
    with pytest.raises(NotRetryable, match="force"):
        retry(begun.id, from_step="a")
    Job.objects.filter(id=begun.id).update(
        state="cancelled", worker="elsewhere", lease_expires_at="2999-01-01T00:00:00Z"
    )
    with pytest.raises(NotRetryable, match="stopping"):
        retry(begun.id, from_step="a", force=True)
    assert len(steps(begun)) == 3
