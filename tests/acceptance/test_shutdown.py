"""SIGTERM, Ctrl-C and deploys: the worker ends in time, nothing is stranded, no attempt burned."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from django_jobs import enqueue, enqueue_many, get
from django_jobs.models import Attempt, Job
from tests import ledger
from tests.app.jobs import deaf, noop, record, slow
from tests.app.models import Ledger
from tests.waiting import until

ABANDONED = 70


def states() -> set[str]:
    return set(Job.objects.values_list("state", flat=True))


def test_sigterm_during_start_up_ends_the_worker_and_strands_nothing(worker: Any) -> None:
    result = enqueue(record, "one")
    # Before the signal is handled, just after, and while the child loads Django.
    for delay in (0.05, 0.0, 0.15):
        running = worker()
        if delay != 0.05:
            running.wait_for("Working on")
        time.sleep(delay)
        running.signal(signal.SIGTERM)
        expected = (0, -signal.SIGTERM) if delay == 0.05 else (0,)
        assert running.wait(15) in expected, delay
        assert running.children() == []
        assert states() <= {"ready", "done"}
    assert worker("--drain").wait(30) == 0
    assert get(result.id).state == "done"


def test_sigterm_during_claims_strands_nothing_and_burns_no_attempt(
    jobs_alias: str, worker: Any
) -> None:
    enqueue_many(noop.call(n) for n in range(3000))
    for _ in range(2):
        before = Job.objects.filter(state="done").count()
        running = worker()
        until(lambda: Job.objects.filter(state="done").count() > before)  # noqa: B023
        assert running.stop(30) == 0
        assert "running" not in states()
    assert worker("--drain").wait(60) == 0
    assert states() == {"done"}
    assert set(Job.objects.values_list("attempt", "crashes")) == {(1, 0)}


def test_running_jobs_end_within_the_grace_and_waiting_ones_stay(
    jobs_alias: str, worker: Any
) -> None:
    jobs = enqueue_many(deaf.call(2.0, str(n)) for n in range(4))
    running = worker("--threads", "4", SHUTDOWN_GRACE=10, LEASE=1)
    until(lambda: len(ledger.runs()) == 4)
    waiting = enqueue(noop)
    told = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - told < 8
    # The lease was shorter than the rest of the bodies: it was renewed to the end.
    assert {get(r.id).state for r in jobs} == {"done"}
    assert Ledger.objects.count() == 8
    assert get(waiting.id).state == "ready"


def test_deaf_bodies_past_the_grace_are_handed_back_and_the_exit_code_tells(
    jobs_alias: str, worker: Any
) -> None:
    stuck = enqueue(deaf, 30.0, "stuck")
    running = worker(SHUTDOWN_GRACE=1)
    until(lambda: ledger.runs().get(str(stuck.id)))
    told = time.monotonic()
    assert running.stop() == ABANDONED
    assert time.monotonic() - told < 1 + 5
    job = Job.objects.get(id=stuck.id)
    assert (job.state, job.attempt, job.crashes, job.worker) == ("ready", 0, 0, "")
    assert not Attempt.objects.using(jobs_alias).exists()


def test_bodies_that_listen_are_stopped_at_the_end_of_the_grace(worker: Any) -> None:
    polite = enqueue(slow, 30.0, "polite")
    running = worker(SHUTDOWN_GRACE=1)
    until(lambda: ledger.runs().get(str(polite.id)))
    assert running.stop() == 0
    job = Job.objects.get(id=polite.id)
    assert (job.state, job.attempt, job.worker) == ("ready", 0, "")


def test_a_second_sigterm_aborts_at_once(worker: Any) -> None:
    polite, stuck = enqueue(slow, 60.0, "polite"), enqueue(deaf, 60.0, "stuck")
    running = worker(SHUTDOWN_GRACE=50)
    until(lambda: len(ledger.runs()) == 2)
    running.signal(signal.SIGTERM)
    time.sleep(0.7)
    assert running.running
    again = time.monotonic()
    running.signal(signal.SIGTERM)
    assert running.wait(10) == ABANDONED
    assert time.monotonic() - again < 5
    assert {(get(r.id).state, get(r.id).attempt) for r in (polite, stuck)} == {("ready", 0)}


def test_ctrl_c_in_a_terminal_counts_once(worker: Any) -> None:
    job = enqueue(deaf, 2.0, "finishes")
    running = worker(SHUTDOWN_GRACE=20)
    until(lambda: ledger.runs().get(str(job.id)))
    # The terminal signals the whole group, and a shell may do so once more.
    os.killpg(running.pid, signal.SIGINT)
    os.killpg(running.pid, signal.SIGINT)
    [child] = running.children()
    child.send_signal(signal.SIGINT)
    assert running.wait(15) == 0
    assert get(job.id).state == "done"


def test_claims_that_have_not_started_are_handed_back_at_once(worker: Any) -> None:
    enqueue_many(noop.call(n) for n in range(400))
    enqueue_many(deaf.call(6.0, str(n)) for n in range(2))
    enqueue_many(noop.call(n) for n in range(400))
    # Prefetch grows on the quick ones; then both threads are taken.
    running = worker("--threads", "2", SHUTDOWN_GRACE=20)
    until(lambda: len(ledger.runs()) == 2)
    running.signal(signal.SIGTERM)
    until(lambda: Job.objects.filter(state="running").count() == 2, 4)
    assert running.wait(20) == 0
    assert states() == {"done", "ready"}
    assert set(Job.objects.filter(state="ready").values_list("attempt", flat=True)) == {0}


def test_as_many_deploys_as_attempts_do_not_use_these_up(worker: Any) -> None:
    job = enqueue(slow, 2.0, "long")
    for number in range(3):
        running = worker(SHUTDOWN_GRACE=0.2)
        until(lambda: len(ledger.runs().get(str(job.id), [])) == number + 1)  # noqa: B023
        assert running.stop() == 0
        assert get(job.id).state == "ready"
    assert worker("--drain").wait(30) == 0
    row = Job.objects.get(id=job.id)
    assert (row.state, row.attempt, row.crashes) == ("done", 1, 0)
    assert not Attempt.objects.exists()


@pytest.mark.soak
def test_a_killed_deploy_gets_its_job_back_after_the_lease(worker: Any) -> None:
    job = enqueue(deaf, 4.0, "cut")
    running = worker(LEASE=2, SHUTDOWN_GRACE=20)
    until(lambda: ledger.runs().get(str(job.id)))
    running.signal(signal.SIGTERM)
    time.sleep(0.5)
    running.kill()
    after = worker(LEASE=2)
    until(lambda: get(job.id).state == "done", 20)
    assert after.stop() == 0
