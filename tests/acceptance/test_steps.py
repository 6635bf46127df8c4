"""Steps in real workers: they outlive restarts, wake at once, and hold no thread."""

from __future__ import annotations

import time
from typing import Any

from django.db import transaction
from django.utils import timezone

from django_jobs import emit, enqueue, enqueue_many, get
from django_jobs.models import Attempt, Job, Step
from tests.app.models import Ledger
from tests.app.tasks import (
    acollects,
    awaits_approval,
    fans_out,
    naps,
    steps_in_a_bare_thread,
    stuck_in_sql,
)
from tests.waiting import until


def notes() -> list[str]:
    return list(Ledger.objects.order_by("id").values_list("note", flat=True))


def state(job: Any) -> str:
    return get(job.id).state


def test_a_sleep_outlives_the_workers_and_ends_on_time(jobs_alias: str, worker: Any) -> None:
    job = enqueue(naps, 2.0)
    first = worker()
    until(lambda: state(job) == "suspended")
    first.kill()
    wake_at = Step.objects.using(jobs_alias).get(name="nap").wake_at
    assert wake_at is not None
    second = worker()
    until(lambda: state(job) == "done")
    ended = Job.objects.get(id=job.id).finished_at
    assert ended is not None and ended >= wake_at
    assert second.stop() == 0
    assert notes() == ["before", "after"]
    assert Job.objects.get(id=job.id).attempt == 1


def test_a_sleep_that_ended_while_no_worker_was_up_goes_on_with_the_next(worker: Any) -> None:
    job = enqueue(naps, 0.5)
    first = worker()
    until(lambda: state(job) == "suspended")
    assert first.stop() == 0
    until(lambda: Step.objects.filter(name="nap", wake_at__lt=timezone.now()).exists())
    second = worker()
    until(lambda: state(job) == "done")
    assert second.stop() == 0
    assert notes() == ["before", "after"]


def test_an_event_wakes_an_idle_worker_at_once(worker: Any) -> None:
    running = worker(IDLE_POLL=10.0)
    running.wait_for("started: queues")
    jobs = [enqueue(awaits_approval, str(n)) for n in range(5)]
    until(lambda: Job.objects.filter(state="suspended").count() == 5)
    time.sleep(1.0)  # It is idle, and listens.
    took = []
    for number, job in enumerate(jobs):
        began = time.monotonic()
        with transaction.atomic():
            emit("approved", "ann", match=number)
        until(lambda job=job: state(job) == "done", 5)
        took.append(time.monotonic() - began)
    assert min(took) < 0.25, took
    assert max(took) < 2, took
    assert sorted(notes()) == [f"{n} by ann" for n in range(5)]
    assert running.stop() == 0


def test_async_steps_run_at_once_sleep_and_wait_in_a_worker(jobs_alias: str, worker: Any) -> None:
    job = enqueue(acollects, 0.3)
    running = worker()
    until(lambda: state(job) == "done")
    assert get(job.id).result == ["a", "b", "nobody"]
    assert sorted(notes()) == ["fetch a", "fetch b"]
    assert running.stop() == 0


def test_a_step_stuck_in_sql_is_cancelled_and_only_it(worker: Any) -> None:
    job = enqueue(stuck_in_sql)
    running = worker()
    began = time.monotonic()
    until(lambda: state(job) == "done", 10)
    assert time.monotonic() - began < 8
    assert get(job.id).result == "answered"
    assert notes() == ["before"]
    assert Attempt.objects.get(job_id=job.id).error_class == "django_jobs.errors.StepTimeout"
    assert running.stop() == 0


def test_a_step_in_a_thread_that_knows_no_job_is_an_error(worker: Any) -> None:
    job = enqueue(steps_in_a_bare_thread)
    running = worker()
    until(lambda: state(job) == "dead")
    assert "wrap(fn)" in Attempt.objects.get(job_id=job.id).message
    assert running.stop() == 0


def test_parents_that_wait_for_their_children_hold_no_thread(worker: Any) -> None:
    """Twice as many parents as threads: were they to hold them, no child would ever run."""
    parents = enqueue_many(fans_out.call(2) for _ in range(4))
    running = worker("--threads", "2")
    until(lambda: all(state(parent) == "done" for parent in parents))
    assert get(parents[0].id).result == ["child 0", "child 1"]
    assert running.stop() == 0
