"""The current job is ambient for its body, and for nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs.current import CurrentJob, Flag, current_job, current_job_or_none, running
from django_jobs.errors import JobsError, JobTimeout, LeaseLost, NoCurrentJob


def a_job(name: str = "shop.charge", **values: Any) -> CurrentJob:
    defaults = {"id": uuid.uuid4(), "attempt": 1, "max_attempts": 3, "tenant": ""}
    return CurrentJob(name=name, **{**defaults, **values})


def test_outside_a_body_there_is_no_current_job() -> None:
    assert current_job_or_none() is None
    with pytest.raises(NoCurrentJob, match="wrap"):
        current_job()


def test_within_a_run_the_job_is_current_and_afterwards_no_more() -> None:
    outer, inner = a_job("outer"), a_job("inner")
    with running(outer):
        assert current_job() is outer
        with running(inner):
            assert current_job() is inner
        assert current_job() is outer
        with pytest.raises(ZeroDivisionError), running(inner):
            raise ZeroDivisionError
        assert current_job_or_none() is outer
    assert current_job_or_none() is None


def test_a_thread_of_the_body_needs_the_wrapped_function() -> None:
    job = a_job()
    seen: list[CurrentJob | None] = []
    with running(job):
        for fn in (current_job_or_none, job.wrap(current_job_or_none)):
            thread = threading.Thread(target=lambda fn=fn: seen.append(fn()))
            thread.start()
            thread.join()
    assert seen[-1] is job


def test_one_wrapped_function_may_run_in_many_threads_at_once() -> None:
    job = a_job()
    barrier = threading.Barrier(4, timeout=10)

    def body(number: int, *, plus: int) -> tuple[int, CurrentJob]:
        barrier.wait()
        return number + plus, current_job()

    with running(job), ThreadPoolExecutor(4) as pool:
        wrapped = job.wrap(body)
        answers = list(pool.map(lambda number: wrapped(number, plus=1), range(4)))
    assert answers == [(number + 1, job) for number in range(4)]


def test_a_wrapped_function_belongs_to_the_job_that_wrapped_it() -> None:
    job = a_job()
    wrapped = job.wrap(current_job)
    with running(a_job("other")):
        assert wrapped() is job


def test_two_async_bodies_on_one_loop_see_their_own_job() -> None:
    async def body(job: CurrentJob) -> CurrentJob:
        with running(job):
            await asyncio.sleep(0.01)
            return await asyncio.ensure_future(_current())

    async def _current() -> CurrentJob:
        return current_job()

    async def main() -> None:
        jobs = [a_job(str(number)) for number in range(5)]
        assert await asyncio.gather(*map(body, jobs)) == jobs

    asyncio.run(main())


def test_check_lets_a_healthy_run_go_on() -> None:
    a_job().check()
    a_job(deadline=time.monotonic() + 60).check()


def test_check_stops_a_run_past_its_deadline() -> None:
    job = a_job(deadline=time.monotonic() - 0.001)
    assert job.remaining == 0.0
    with pytest.raises(JobTimeout):
        job.check()


def test_check_stops_a_lost_run_through_any_except_exception() -> None:
    job = a_job()
    job.cancelled.set()
    with pytest.raises(LeaseLost) as stopped:
        try:
            job.check()
        except Exception:
            pytest.fail("a body swallowed it")
    assert not isinstance(stopped.value, JobsError)


def test_remaining_counts_down_to_the_deadline() -> None:
    assert a_job().remaining is None
    assert 50 < (a_job(deadline=time.monotonic() + 60).remaining or 0) <= 60


def test_progress_goes_where_the_executor_says_or_nowhere() -> None:
    stored: list[Any] = []
    a_job(rows=SimpleNamespace(store_progress=stored.append)).progress({"done": 1})
    a_job().progress({"done": 1})
    assert stored == [{"done": 1}]


def test_a_flag_wakes_those_who_wait_and_those_who_come_later() -> None:
    flag = Flag()
    assert not flag.is_set()
    assert not flag.wait(0.01)
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(flag.wait(10))) for _ in range(3)]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join(10)
    assert woken == [True] * 3
    assert flag.is_set()
    assert flag.wait(0)


def test_a_flag_that_is_set_before_anyone_waits_is_seen() -> None:
    flag = Flag()
    flag.set()
    assert flag.wait(0)
