"""A thread that nothing can end: its process is replaced, and nobody else pays for it."""

from __future__ import annotations

from typing import Any

from django_jobs import enqueue, enqueue_many, get
from django_jobs.models import Attempt, Job
from tests import ledger
from tests.app.jobs import deaf, noop, stuck
from tests.waiting import until


def test_a_stuck_body_has_its_process_replaced_and_its_neighbours_end_as_usual(
    jobs_alias: str, worker: Any
) -> None:
    neighbour, once = enqueue(deaf, 3.0, "neighbour"), enqueue(stuck, 1)
    running = worker("--threads", "2", STUCK_AFTER=0.5, SHUTDOWN_GRACE=1)
    until(lambda: len(ledger.runs()) == 2)
    [first] = [child.pid for child in running.children()]
    waiting = enqueue_many(noop.call(n) for n in range(5))
    until(lambda: get(once.id).state == "done")
    until(lambda: {get(r.id).state for r in waiting} == {"done"})
    [second] = [child.pid for child in running.children()]
    assert second != first
    # Longer than the grace of a shutdown, and it ended in its own time.
    assert get(neighbour.id).state == "done"
    assert [ran.end is not None for ran in ledger.runs()[str(neighbour.id)]] == [True]
    assert Job.objects.get(id=once.id).crashes == 0
    assert (get(once.id).attempt, get(once.id).result) == (2, "free")
    [attempt] = Attempt.objects.using(jobs_alias).all()
    assert attempt.error_class == "django_jobs.errors.JobTimeout"
    assert attempt.message.startswith("stuck past deadline")
    assert "time.sleep(600)" in attempt.traceback
    running.wait_for(f"is replaced: tests.app.jobs.stuck {once.id} is stuck")
    assert running.stop() == 0


def test_a_body_that_is_stuck_on_its_last_attempt_is_a_dead_letter(worker: Any) -> None:
    hopeless = enqueue(stuck, 9)
    Job.objects.update(max_attempts=1)
    running = worker("--threads", "1", STUCK_AFTER=0.2)
    until(lambda: get(hopeless.id).state == "dead")
    assert get(hopeless.id).reason == "stuck past deadline"
    after = enqueue(noop)
    until(lambda: get(after.id).state == "done")
    assert running.stop() == 0
