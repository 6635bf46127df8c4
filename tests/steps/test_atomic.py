"""Atomic steps, async steps, and memories that meet a take-over."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_jobs import Retry, current_job, emit, get, step
from django_jobs.errors import LeaseLost, StepRefused
from django_jobs.ids import new_token
from django_jobs.models import Job, OwnRows
from django_jobs.states import State
from django_jobs.steps.memo import Kind, Memo, Status
from django_jobs.testing import drain
from tests.app import tasks
from tests.app.tasks import astepping, done
from tests.rows.parties import jobs, make, party, run_of, until_one_waits
from tests.steps.stepping import again, begin, effects, run, state, steps
from tests.steps.test_running import Broken, fail_once

IN_DEFAULT = pytest.mark.django_db(transaction=True, databases="__all__")


def test_an_atomic_step_leaves_its_effect_and_its_memory_or_neither(jobs_alias: str) -> None:
    def fails_late() -> str:
        done("effect")
        fail_once()
        return "ok"

    job, _ = run(lambda: step.run("a", fails_late, atomic=jobs_alias))
    assert (effects(), steps(job)) == ([], {"a": "retrying"})
    again()
    assert (state(job), effects(), steps(job)) == ("done", ["effect"], {"a": "done"})


def test_a_block_that_rolls_back_forgets_its_atomic_steps(jobs_alias: str) -> None:
    def body() -> None:
        with current_job().atomic():
            step.run("a", done, "a", atomic=jobs_alias)
            fail_once()

    job, _ = run(body)
    assert (effects(), steps(job)) == ([], {})
    again()
    assert (state(job), effects(), steps(job)) == ("done", ["a"], {"a": "done"})


def test_an_atomic_step_in_a_block_may_fail_with_a_retry_of_its_own(jobs_alias: str) -> None:
    def body() -> None:
        with current_job().atomic():
            done("first")
            step.run("a", fail_once, atomic=jobs_alias, retry=Retry(max_attempts=5))

    job, [ran] = run(body)
    assert "Broken" in ran.error  # It rolled back with its block; the attempt failed.
    again()
    assert (state(job), effects()) == ("done", ["first"])


@IN_DEFAULT
@pytest.mark.parametrize("atomic", ["other", "sqlite"])
def test_an_atomic_step_on_another_database_is_refused(atomic: str) -> None:
    job, [ran] = run(lambda: step.run("a", done, "a", atomic=atomic))
    assert "AtomicNeedsOneDatabase" in ran.error
    assert (state(job), effects()) == ("dead", [])


@IN_DEFAULT
def test_no_step_is_remembered_within_a_block_on_another_database() -> None:
    def body(atomic: bool) -> None:
        with current_job().atomic(using="other"):
            step.run("a", done, "a", atomic=atomic)

    for atomic, says in ((False, "StepRefused"), (True, "AtomicNeedsOneDatabase")):
        job, [ran] = run(lambda atomic=atomic: body(atomic))
        assert says in ran.error
        assert (state(job), effects(), steps(job)) == ("dead", [], {})


def test_a_run_that_lost_its_job_remembers_nothing(jobs_alias: str) -> None:
    def body() -> None:
        def loses() -> None:
            Job.objects.update(lease=new_token())

        step.run("a", loses)

    job, _ = run(body)
    assert (state(job), steps(job)) == ("running", {})


@IN_DEFAULT
def test_a_memory_that_meets_a_take_over_waits_for_it_and_is_refused() -> None:
    made = make(State.RUNNING)
    rows = OwnRows(run_of(made))
    memo = Memo("a", Kind.RUN, Status.DONE, position=1, output="1")

    def remember() -> str:
        try:
            rows.store_steps([memo])
        except LeaseLost:
            return "refused"
        return "stored"

    with party() as other:
        with transaction.atomic():
            jobs().filter(id=made.id).update(lease=new_token())
            answer = other.start(remember)
            until_one_waits()
        assert answer.result(10) == "refused"
    assert steps(made.id) == {}


def test_async_steps_are_remembered_too(jobs_alias: str) -> None:
    seen = []

    async def effect(text: str) -> str:
        from asgiref.sync import sync_to_async

        return await sync_to_async(done)(text)

    async def fails() -> None:
        raise Broken

    async def body() -> Any:
        seen.append(await step.arun("a", effect, "a"))
        await step.asleep("nap", 5)
        if current_job().attempt == 1:
            await step.arun("flaky", fails)
        got = await step.await_event("approved")
        won = await step.afirst("race", now=step.Timer(0), event=step.Event("never"))
        return [got, won.name, *await step.aparallel(lambda: step.arun("b", effect, "b"))]

    tasks.abody = body
    job = begin(lambda: None, astepping)
    drain()
    assert state(job) == "suspended"
    again()
    emit("approved", "yes")
    again()
    assert get(job.id).result == ["yes", "now", "b"]
    assert effects() == ["a", "b"]
    assert seen == ["a", "a", "a"]


def test_an_async_step_out_of_time_is_cancelled(jobs_alias: str) -> None:
    import asyncio

    async def slow() -> None:
        await asyncio.sleep(20)

    async def body() -> None:
        await step.arun("a", slow, timeout=0.05)

    tasks.abody = body
    job = begin(lambda: None, astepping)
    [ran] = drain()
    assert "StepTimeout: step 'a' ran longer than 0.05 s" in ran.error
    assert state(job) == "delayed"


def test_async_steps_outside_a_worker_are_plain_calls() -> None:
    async def body() -> Any:
        async def one() -> int:
            return 1

        await step.asleep(3600)
        return await step.aparallel(lambda: step.arun("a", one), lambda: step.arun("a", one))

    assert async_to_sync(body)() == (1, 1)


def test_the_key_of_a_step_is_the_same_on_every_attempt(jobs_alias: str) -> None:
    keys = []

    def effect() -> None:
        keys.append(step.key())
        fail_once()

    job, _ = run(lambda: step.run("pay", effect))
    again()
    assert keys == [f"{job.id}/pay"] * 2
    with pytest.raises(StepRefused):
        step.key()
    assert step.run("pay", step.key) == "pay"
