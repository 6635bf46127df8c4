"""kill -9: nothing is lost, nothing runs twice at one time, and nobody pays for a neighbour."""

from __future__ import annotations

import os
import re
import signal
import time
from datetime import timedelta
from typing import Any

import psutil
import pytest
from django.utils import timezone

from django_jobs import enqueue, enqueue_many, get
from django_jobs.models import Attempt, Job
from tests import ledger
from tests.app.jobs import deaf, ends_thread, noop, poison, record
from tests.app.models import Ledger
from tests.waiting import until


def done() -> int:
    return Job.objects.filter(state="done").count()


def bodies(pid: int) -> int:
    return Ledger.objects.filter(pid=pid).count()


def kill(process: psutil.Process) -> Any:
    """SIGKILL; the time at which the process was gone for certain."""
    process.kill()
    process.wait(5)
    return timezone.now()


def test_a_worker_process_killed_in_the_middle_of_200_jobs_loses_none_and_doubles_none(
    jobs_alias: str, worker: Any
) -> None:
    # Long enough that some are on their way whenever their process is killed.
    enqueue_many(deaf.call(0.08, str(n)) for n in range(200))
    # Processes on PostgreSQL, one on SQLite, which takes no more.
    running = worker("--processes", "2" if jobs_alias == "default" else "1", LEASE=6)
    until(lambda: done() >= 40)
    victim = next(c for c in running.children() if bodies(c.pid))
    died = kill(victim)
    until(lambda: done() == 200, 60)
    assert running.stop() == 0
    assert ledger.overlapping({victim.pid: died}) == []
    cut_short = {job: ran for job, ran in ledger.runs().items() if any(r.end is None for r in ran)}
    assert 1 <= len(cut_short) <= 4
    for ran in cut_short.values():
        assert [r.pid == victim.pid and r.end is None for r in ran] == [True, False]
        # On SQLite a new process must start first; its lease is two minutes.
        assert ran[1].start - died < timedelta(seconds=6 if jobs_alias == "default" else 60)
    assert set(Job.objects.filter(id__in=cut_short).values_list("crashes", "attempt")) == {(1, 1)}


def test_jobs_of_a_machine_that_lost_power_run_on_another_within_their_lease(worker: Any) -> None:
    enqueue_many(deaf.call(0.1, str(n)) for n in range(40))
    first = worker(LEASE=2)
    until(lambda: done() >= 8)
    pids = [c.pid for c in first.children()]
    first.kill()
    died = timezone.now()
    started = time.monotonic()
    held = set(Job.objects.filter(state="running").values_list("id", flat=True))
    assert held
    second = worker(LEASE=2)
    until(lambda: done() == 40)
    assert second.stop() == 0
    assert time.monotonic() - started < 15
    assert ledger.overlapping(dict.fromkeys(pids, died)) == []
    crashed = Job.objects.filter(crashes=1)
    assert {job.id for job in crashed} == held
    lost = Attempt.objects.filter(job_id__in=held)
    assert {a.error_class for a in lost} == {"django_jobs.errors.LeaseLost"}
    assert lost.count() == len(held)


def test_a_poison_job_ends_dead_after_three_crashes_and_buries_no_neighbour(
    jobs_alias: str, worker: Any
) -> None:
    neighbours = [r.id for r in enqueue_many(deaf.call(0.05, str(n)) for n in range(10))]
    bad = enqueue(poison)
    neighbours += [r.id for r in enqueue_many(deaf.call(0.05, str(n)) for n in range(10))]
    running = worker(LEASE=3)
    until(lambda: get(bad.id).state == "dead", 60)
    until(lambda: done() == 20, 60)
    job = Job.objects.get(id=bad.id)
    assert (job.crashes, job.reason) == (3, "worker lost 3 times")
    assert Attempt.objects.using(jobs_alias).filter(job_id=bad.id).count() == 3
    assert {get(id).state for id in neighbours} == {"done"}
    after = enqueue(record, "after")
    until(lambda: get(after.id).state == "done")
    assert running.stop() == 0
    assert running.output.count("ended with code") == 3


def test_worker_processes_drain_and_exit_when_their_supervisor_is_killed(worker: Any) -> None:
    running_job = enqueue(deaf, 1.5, "on its way")
    running = worker()
    until(lambda: ledger.runs().get(str(running_job.id)))
    [child] = running.children()
    running.signal(signal.SIGKILL)
    waiting = enqueue_many(noop.call(n) for n in range(3))
    psutil.wait_procs([child], 10)
    assert not child.is_running()
    assert get(running_job.id).state == "done"
    assert not Job.objects.filter(state="running").exists()
    assert worker("--drain").wait(30) == 0
    assert {get(r.id).state for r in waiting} == {"done"}


def test_a_killed_worker_process_is_replaced(worker: Any) -> None:
    running = worker("--processes", "2")
    until(lambda: len(running.children()) == 2)
    running.wait_for("started: queues")
    before = {c.pid for c in running.children()}
    os.kill(min(before), signal.SIGKILL)
    until(lambda: len({c.pid for c in running.children()} - {min(before)}) == 2)
    result = enqueue(record, "after the loss")
    until(lambda: get(result.id).state == "done")
    assert running.stop() == 0


@pytest.mark.soak
def test_a_worker_process_told_to_end_by_somebody_else_is_replaced_too(worker: Any) -> None:
    running = worker()
    running.wait_for("started: queues")
    [child] = running.children()
    child.terminate()
    until(lambda: [c.pid for c in running.children()] not in ([], [child.pid]), 10)
    result = enqueue(record, "after it")
    until(lambda: get(result.id).state == "done")
    assert running.stop() == 0


@pytest.mark.parametrize(
    "name",
    [
        "settler",
        "body",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("control", "claimer", "leases")),
    ],
)
def test_a_process_that_lost_one_of_its_threads_ends_non_zero_and_is_replaced(
    worker: Any, name: str
) -> None:
    running = worker("--threads", "2")
    enqueue(ends_thread, name)
    until(lambda: Ledger.objects.exists())
    enqueue_many(noop.call(n) for n in range(20))  # A thread of bodies dies when it wakes.
    running.wait_for("ended with code 1", 20)
    assert re.search(f"{name}.* died", running.output)
    result = enqueue(record, "after the loss")
    until(lambda: get(result.id).state == "done", 30)
    assert running.stop() == 0
