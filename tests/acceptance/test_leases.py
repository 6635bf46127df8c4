"""Leases: who stood still has lost, who is well keeps what it holds, whatever the database does."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.utils import timezone

from django_jobs import cancel, enqueue, enqueue_many, get, retry
from django_jobs.errors import NotRetryable
from django_jobs.models import Attempt, Job
from tests import ledger
from tests.app.jobs import asleep, coroutine, deaf, noop, slow
from tests.app.models import Ledger
from tests.waiting import until


def running(job_id: Any, alias: str = "default") -> bool:
    return bool(ledger.runs(alias).get(str(job_id)))


def test_a_worker_that_stood_still_past_its_lease_changes_nothing_and_goes_on_working(
    worker: Any,
) -> None:
    told = [enqueue(deaf, 1.0, "deaf"), enqueue(slow, 1.0, "listens")]
    frozen = worker(LEASE=2)
    until(lambda: all(running(r.id) for r in told))
    frozen.freeze()
    other = worker(LEASE=2)
    until(lambda: all(get(r.id).state == "done" for r in told))
    before = list(Job.objects.order_by("id").values())
    frozen.thaw()
    # The frozen bodies end, and what they offer is refused: whether the process first noticed by
    # its own clock, or a body that had slept its time ended sooner.
    for name in ("deaf", "slow"):
        frozen.wait_for(f"INFO lost tests.app.jobs.{name} ", 10)
    assert list(Job.objects.order_by("id").values()) == before
    assert {(a.number, a.error_class) for a in Attempt.objects.all()} == {
        (1, "django_jobs.errors.LeaseLost")
    }
    assert other.stop() == 0
    after = enqueue(noop)
    until(lambda: get(after.id).state == "done")
    assert frozen.stop() == 0


def test_the_lease_of_a_long_job_is_renewed(worker: Any) -> None:
    job = enqueue(deaf, 5.0, "long")
    workers = [worker(LEASE=1.5), worker(LEASE=1.5)]
    until(lambda: get(job.id).state == "done")
    assert len(ledger.runs()[str(job.id)]) == 1
    assert Job.objects.get(id=job.id).crashes == 0
    assert [w.stop() for w in workers] == [0, 0]


def test_a_long_job_at_the_head_keeps_no_other_from_a_worker_that_could_start_it(
    worker: Any,
) -> None:
    enqueue_many(noop.call(n) for n in range(300))
    long = enqueue(slow, 600.0, "long")
    enqueue_many(noop.call(n) for n in range(300))
    first = worker("--threads", "1", SHUTDOWN_GRACE=0.2)
    until(lambda: running(long.id))
    # It had claimed ahead; that comes back a second later and the other worker takes it.
    second = worker("--threads", "1")
    until(lambda: Job.objects.filter(state="done").count() == 600)
    assert get(long.id).state == "running"
    assert second.stop() == 0
    assert first.stop() == 0
    assert get(long.id).state == "ready"


@pytest.mark.parametrize("long", [asleep, pytest.param(slow, marks=pytest.mark.soak)])
def test_an_outage_longer_than_the_lease_lapses_nothing(
    private: Any, private_worker: Any, long: Any
) -> None:
    jobs = enqueue_many(long.call(12.0, str(n)) for n in range(4))
    process = private_worker(LEASE=4)
    until(lambda: Job.objects.filter(state="running").count() == 4)
    other = private_worker(LEASE=4)
    other.wait_for("started: queues")
    connections["private"].close()
    private.stop("immediate")
    time.sleep(5)
    process.freeze()  # The other one sees the database first, and must wait all the same.
    private.start()
    other.wait_for("loop control: the database is back")
    time.sleep(0.5)
    process.thaw()
    until(lambda: {get(r.id).state for r in jobs} == {"done"}, 60)
    assert set(Job.objects.values_list("crashes", "attempt")) == {(0, 1)}
    assert not Attempt.objects.using("private").exists()
    if long is asleep:  # A body that listens was told that its lease ran out, and ran again.
        starts = Ledger.objects.using("private").filter(note__startswith="start")
        assert starts.count() == 4
    assert process.stop() == 0


def test_a_cancel_reaches_running_bodies_within_a_second(jobs_alias: str, worker: Any) -> None:
    jobs = [enqueue(slow, 60.0, "sync"), enqueue(coroutine, 60.0, "async")]
    process = worker("--threads", "2")
    until(lambda: Ledger.objects.count() == 2)
    for job in jobs:
        asked = time.monotonic()
        assert cancel(job.id, by="an operator", reason="no longer wanted") == "running"
        row = Job.objects.get(id=job.id)
        assert (row.state, row.cancelled_by) == ("cancelled", "an operator")
        assert row.reason == "no longer wanted"
        until(lambda: Job.objects.get(id=job.id).worker == "", 10)  # noqa: B023
        # A second, and what a busy machine takes.
        assert time.monotonic() - asked < 2.0
    assert not Ledger.objects.filter(note__startswith="end").exists()
    after = enqueue(noop)
    until(lambda: get(after.id).state == "done")
    assert process.stop() == 0
    assert {get(job.id).state for job in jobs} == {"cancelled"}


def test_a_cancelled_job_is_stopping_until_its_body_has_ended_and_cannot_run_again_before(
    worker: Any,
) -> None:
    job = enqueue(deaf, 5.0, "deaf")
    process = worker(LEASE=1.5)
    until(lambda: running(job.id))
    cancel(job.id)
    stopped_at = time.monotonic() + 3
    while time.monotonic() < stopped_at:  # Twice the lease: it is renewed as long as it lasts.
        row = Job.objects.get(id=job.id)
        assert row.worker
        assert row.lease_expires_at is not None
        assert row.lease_expires_at > timezone.now()
        with pytest.raises(NotRetryable, match="stopping"):
            retry(job.id, force=True)
        time.sleep(0.2)
    until(lambda: Job.objects.get(id=job.id).worker == "", 20)
    assert get(job.id).state == "cancelled"
    retry(job.id, force=True)
    until(lambda: get(job.id).state == "done", 20)
    assert process.stop() == 0


@pytest.mark.soak
def test_a_body_that_fails_by_the_outage_itself_is_tried_again(
    private: Any, private_worker: Any
) -> None:
    """Its error is stored once the database is back, and counts as an ordinary failed attempt."""
    job = enqueue(deaf, 1.5, "ends during the outage")
    process = private_worker(LEASE=10)
    until(lambda: running(job.id, "private"))
    connections["private"].close()
    private.stop()
    with pytest.raises(OperationalError):
        connections["private"].ensure_connection()
    time.sleep(2)
    private.start()
    until(lambda: get(job.id).state == "done", 60)
    [attempt] = Attempt.objects.using("private").filter(job_id=job.id)
    assert attempt.error_class.endswith("OperationalError")
    assert process.stop() == 0
