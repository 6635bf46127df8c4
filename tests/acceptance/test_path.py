"""From enqueue inside a transaction to done, by a real worker."""

from __future__ import annotations

from typing import Any

from django.db import transaction

import django_jobs
from django_jobs import enqueue, enqueue_many, get
from django_jobs.models import Attempt, Job, publishing
from tests.app.jobs import coroutine, fails, noop, record, terminal
from tests.app.models import Ledger
from tests.waiting import until


def test_a_committed_job_runs_once_and_a_rolled_back_one_never_existed(
    jobs_alias: str, worker: Any
) -> None:
    with transaction.atomic(using=jobs_alias):
        kept = enqueue(record, "kept")
        try:
            with transaction.atomic(using=jobs_alias):
                lost = enqueue(record, "lost")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert kept.status == "staged"
        assert get(kept.id).state == "staged"
    direct = enqueue(record, "direct")
    assert direct.status == "published"
    assert worker("--drain").wait(30) == 0
    assert get(kept.id).state == "done"
    assert get(kept.id).result == "kept"
    assert sorted(Ledger.objects.values_list("job_key", flat=True)) == sorted(
        [str(kept.id), str(direct.id)]
    )
    assert not Job.objects.filter(id=lost.id).exists()
    assert not publishing.outbox(jobs_alias).filter(id=lost.id).exists()


def test_failures_are_retried_and_give_up_as_dead_letters(jobs_alias: str, worker: Any) -> None:
    recovers, gives_up, hopeless = (
        enqueue(fails, times=2),
        enqueue(fails, times=9),
        enqueue(terminal),
    )
    running = worker()
    until(lambda: get(gives_up.id).state == "dead" and get(recovers.id).state == "done")
    assert running.stop() == 0
    assert get(recovers.id).result == "at last"
    assert get(hopeless.id).state == "dead"
    assert get(hopeless.id).attempt == 1
    attempts = Attempt.objects.using(jobs_alias).filter(job_id=gives_up.id)
    assert [a.number for a in attempts] == [1, 2, 3]
    assert attempts[0].error_class == "ValueError"
    assert "tests/app/jobs.py" in attempts[0].traceback
    assert "hunter2" not in attempts[0].traceback + attempts[0].message
    django_jobs.retry(hopeless.id)
    assert get(hopeless.id).state == "ready"


def test_async_bodies_run_side_by_side(jobs_alias: str, worker: Any) -> None:
    calls = [coroutine.call(0.5, str(n)) for n in range(10)]
    results = enqueue_many(calls)
    assert worker("--drain", "--threads", "2").wait(30) == 0
    assert {get(r.id).result for r in results} == {str(n) for n in range(10)}


def test_many_jobs_in_one_call(jobs_alias: str, worker: Any) -> None:
    results = enqueue_many(noop.call(n) for n in range(2000))
    assert {r.status for r in results} == {"staged"}
    assert worker("--drain").wait(60) == 0
    assert Job.objects.filter(state="done").count() == 2000
