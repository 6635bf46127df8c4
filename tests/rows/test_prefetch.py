"""What a worker claims ahead, and when; what its settler tells, and when."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_jobs import enqueue_many
from django_jobs.leases import LeaseBook
from django_jobs.loops.settler import Settler
from django_jobs.loops.worker import Worker
from django_jobs.models import Job
from django_jobs.outcomes import Succeeded
from django_jobs.signals import job_ended
from tests.app.jobs import noop
from tests.waiting import until


@pytest.fixture
def made(transactional_db: None) -> Any:
    """A worker of one thread beside a settler that nobody drives, with 300 jobs to do."""
    enqueue_many([noop.call(number) for number in range(300)])
    leases, low = LeaseBook(60.0), threading.Event()
    settler = Settler(leases)
    worker = Worker(
        leases,
        settler,
        name="w",
        queues=("default",),
        threads=1,
        async_slots=1,
        on_low=low.set,
    )
    yield worker, settler, low
    worker.stop()
    for thread in worker._threads:
        thread.join(10)


def states() -> dict[str, int]:
    rows = list(Job.objects.values_list("state", flat=True))
    return {state: rows.count(state) for state in set(rows)}


def test_a_busy_worker_claims_again_before_what_it_ran_is_settled(made: Any) -> None:
    worker, settler, low = made
    assert worker.tick() == 1  # One idle thread, and nothing known of how fast jobs end.
    settler.finished = 100  # By now as many have ended within the last moments.
    assert worker.tick() == 99
    assert worker.tick() == 0  # Enough wait.
    worker.start()
    assert low.wait(30)
    until(lambda: settler._incoming.qsize() == 100)
    assert states() == {"running": 100, "ready": 200}
    low.clear()
    assert worker.tick() == 100
    assert low.wait(30)  # And so on.


def test_a_slow_worker_is_not_asked_to_claim_ahead(made: Any) -> None:
    worker, settler, low = made
    assert worker.tick() == 1
    worker.start()
    until(lambda: settler._incoming.qsize() == 1)
    assert not low.is_set()


def test_a_settler_is_idle_only_when_all_that_it_stored_is_told(made: Any) -> None:
    """A process ends when it is; the last line of a drain must not be lost."""
    worker, settler, _ = made
    told: list[tuple[str, bool, int]] = []

    def listen(sender: str, run: Any, **_: Any) -> None:
        told.append((Job.objects.get(id=run.id).state, settler.idle(), settler.finished))

    worker.tick()  # So that the next one knows how many have ended since.
    settler.finished = 3
    worker.tick()
    settler.finished = 0
    for held in worker.leases._held.copy().values():
        settler.put(held, Succeeded())
    job_ended.connect(listen)
    try:
        count = settler.tick()
    finally:
        job_ended.disconnect(listen)
    assert told == [("done", False, count)] * count and count
    assert settler.idle() and len(worker.leases) == 0
