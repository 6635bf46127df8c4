"""Sync bodies take threads and async bodies take slots: neither keeps the other waiting."""

from __future__ import annotations

from typing import Any

from django_jobs import enqueue, enqueue_many, get
from django_jobs.models import Job
from tests import ledger
from tests.app.jobs import coroutine, coroutine_waiting, noop, slow
from tests.app.models import Ledger
from tests.waiting import until


def test_an_async_job_starts_while_every_thread_is_taken(jobs_alias: str, worker: Any) -> None:
    enqueue_many(slow.call(600.0, str(n)) for n in range(6))
    running = worker("--threads", "1", SHUTDOWN_GRACE=0.2)
    until(lambda: len(ledger.runs()) == 1)
    quick = enqueue(coroutine, 0.0, "quick")
    until(lambda: get(quick.id).state == "done", 10)
    # What no thread could start was not even claimed for it.
    assert Job.objects.filter(started_at=None).count() == 5
    assert running.stop() == 0


def test_a_sync_job_starts_while_every_slot_is_taken_and_the_rest_stays_unclaimed(
    jobs_alias: str, worker: Any
) -> None:
    waiting = enqueue_many(coroutine_waiting.call(str(n)) for n in range(40))
    running = worker("--threads", "2", "--async-slots", "3")
    until(lambda: Ledger.objects.count() == 3)
    quick = enqueue_many(noop.call(n) for n in range(10))
    until(lambda: {get(r.id).state for r in quick} == {"done"}, 10)
    held = set(Job.objects.exclude(started_at=None).values_list("id", flat=True))
    # A claim that could not know what it would bring may bring a thread's share of them, once.
    assert len(held & {r.id for r in waiting}) <= 3 + 2
    Ledger.objects.create(job_key="", attempt=0, pid=0, note="release")
    until(lambda: {get(r.id).state for r in waiting} == {"done"})
    assert running.stop() == 0
