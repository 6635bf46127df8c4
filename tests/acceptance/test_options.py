"""What ``runworker`` can be told, and what it says to what it cannot do."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models import F, Q

from django_jobs import enqueue, enqueue_many, get
from django_jobs.models import Attempt, Job, publishing
from tests.app.jobs import coroutine_overdue, noop, overdue, record, reports_progress
from tests.app.models import Ledger
from tests.waiting import until
from tests.workers import ROOT, environment


def refused(*arguments: str, **jobs: Any) -> tuple[int, str]:
    """Exit code and messages of a ``runworker`` that should not start."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "runworker", *arguments],
        cwd=ROOT,
        env=environment(jobs),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--threads", "0"], 2, "'0' is not a whole number of at least 1"),
        (
            ["--loops", "relay,drummer"],
            1,
            "no loop 'drummer'. Known: relay, waker, scheduler",
        ),
        (["--queues", ","], 2, "expected at least one name"),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_be_right(
    transactional_db: None, arguments: list[str], code: int, says: str
) -> None:
    returned, told = refused(*arguments)
    assert returned == code
    assert says in told
    assert "Traceback" not in told


def test_two_processes_on_sqlite_are_refused(transactional_db: None) -> None:
    returned, told = refused("--processes", "2", DATABASE="sqlite")
    assert returned == 1
    assert "--processes must be 1 on SQLite" in told
    assert "Traceback" not in told


def test_queues_and_loops_that_were_not_named_are_left_alone(jobs_alias: str, worker: Any) -> None:
    ours = enqueue(record.using(queue="ours"), "ours")
    theirs = enqueue(record.using(queue="theirs"), "theirs")
    staged = enqueue_many(noop.call(n) for n in range(501))  # So many are staged.
    assert worker("--queues", "ours", "--loops", "worker,waker", "--drain").running
    until(lambda: get(ours.id).state == "done")
    time.sleep(0.5)
    assert get(theirs.id).state == "ready"
    assert get(staged[0].id).state == "staged"


def test_a_process_is_replaced_after_its_share_of_jobs(worker: Any) -> None:
    enqueue_many(record.call(str(n)) for n in range(30))
    running = worker("--max-jobs", "20", "--threads", "2")
    until(lambda: Job.objects.filter(state="done").count() == 30)
    until(lambda: running.output.count("started: queues") >= 2)
    assert "ended with code" not in running.output
    assert running.stop() == 0
    assert set(Job.objects.values_list("attempt", "crashes")) == {(1, 0)}


def test_a_process_above_its_memory_is_replaced_and_one_always_above_it_still_works(
    worker: Any,
) -> None:
    enqueue_many(record.call(str(n)) for n in range(8))
    running = worker("--max-rss", "1")
    until(lambda: Job.objects.filter(state="done").count() == 8)
    until(lambda: running.output.count("started: queues") >= 2)
    assert running.stop() == 0


def test_a_job_that_this_release_does_not_know_waits_and_holds_up_nobody(
    jobs_alias: str, worker: Any
) -> None:
    unknown = enqueue(record, "from a newer release")
    Job.objects.filter(id=unknown.id).update(name="newer.jobs.work")
    known = enqueue(noop)
    assert worker("--drain", UNKNOWN_DELAY=1).wait(30) == 0
    assert get(known.id).state == "done"
    job = Job.objects.get(id=unknown.id)
    assert (job.state, job.attempt, job.crashes) == ("suspended", 0, 0)
    assert "no job named 'newer.jobs.work'" in job.reason
    Job.objects.filter(id=unknown.id).update(name=record.name)  # A release that knows it.
    running = worker()
    until(lambda: get(unknown.id).state == "done")
    assert (get(unknown.id).attempt, get(unknown.id).reason) == (1, "")
    assert running.stop() == 0


def test_a_timeout_reaches_sql_loops_and_coroutines_and_is_told_as_such(worker: Any) -> None:
    jobs = [enqueue(overdue, "sql"), enqueue(overdue, "loop"), enqueue(coroutine_overdue)]
    running = worker()
    until(lambda: {get(job.id).state for job in jobs} == {"dead"}, 15)
    attempts = Attempt.objects.all()
    assert [a.error_class for a in attempts] == ["django_jobs.errors.JobTimeout"] * 3
    assert all("longer than its timeout" in a.message for a in attempts)
    sql = attempts.get(job_id=jobs[0].id)
    assert sql.started_at is not None
    assert (sql.ended_at - sql.started_at).total_seconds() < 5
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE query LIKE '%pg_sleep(20)%' AND pid <> pg_backend_pid() AND state = 'active'"
        )
        assert cursor.fetchone()[0] == 0
    after = enqueue(record, "after")
    until(lambda: get(after.id).state == "done")
    assert running.stop() == 0


def test_results_and_progress_can_be_read(jobs_alias: str, worker: Any) -> None:
    told, returned = enqueue(reports_progress), enqueue(record, "result")
    assert worker("--drain").wait(30) == 0
    assert get(told.id).progress == {"done": 1, "of": 2}
    assert get(told.id).result is None
    assert get(returned.id).result == "result"


def test_history_older_than_its_retention_is_deleted_and_younger_is_kept(
    jobs_alias: str, worker: Any
) -> None:
    old = enqueue_many(noop.call(n) for n in range(3))
    assert worker("--drain").wait(30) == 0
    young = enqueue(noop)
    Job.objects.filter(id__in=[r.id for r in old]).update(
        finished_at=F("finished_at") - timedelta(seconds=3600)
    )
    running = worker(RETENTION={"done": 1800}, JANITOR_INTERVAL=0.5)
    until(lambda: not Job.objects.filter(id__in=[r.id for r in old]).exists(), 20)
    until(lambda: get(young.id).state == "done")
    assert running.stop() == 0
    assert Ledger.objects.count() == 0
    assert not publishing.outbox(jobs_alias).filter(~Q(outcome=None)).exists()
