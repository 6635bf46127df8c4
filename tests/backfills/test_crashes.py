"""kill -9 while a sweep runs: every row is changed once, and the pass goes on at its page."""

from __future__ import annotations

import random
from typing import Any

from django.core.management import call_command

from django_jobs.models import Job
from django_jobs.operations.backfilling import found_pass
from tests.app.backfills import fill_shards, fill_slowly
from tests.backfills.parties import changes, make_items, start
from tests.waiting import until


def test_a_sweep_killed_at_any_moment_resumes_at_its_page_and_changes_every_row_once(
    jobs_alias: str, worker: Any
) -> None:
    make_items(90)
    started = start(fill_slowly)
    chosen = random.Random(5)
    # As often as a job may crash that does not get on; on SQLite a process takes long to start.
    for kill in range(3 if jobs_alias == "default" else 1):
        running = worker("--threads", "1", LEASE=1)
        wanted = 10 + 20 * kill + chosen.randrange(15)
        until(lambda w=wanted: sum(changes()) >= w)
        running.kill()
        seen = found_pass(started.pk)
        assert (seen.state, seen.rows) == ("running", sum(changes()))
        # As the waker does once the lease of a lost worker has run out.
        Job.objects.all().lapse(limit=10, max_crashes=3, worker=Job.objects.get().worker)
    worker("--threads", "1")
    until(lambda: found_pass(started.pk).state == "completed")
    assert changes() == [1] * 90
    done = found_pass(started.pk)
    assert (done.rows, done.skipped) == (90, 0)


def test_the_shards_of_a_pass_survive_a_killed_worker_and_meet_nowhere(worker: Any) -> None:
    make_items(80)
    started = start(fill_shards)
    first = worker("--threads", "2", LEASE=2)
    until(lambda: sum(changes()) >= 16)
    first.kill()
    worker("--threads", "2", LEASE=2)
    until(lambda: found_pass(started.pk).state == "completed")
    assert changes() == [1] * 80
    done = found_pass(started.pk)
    assert (done.rows, done.ranges.count()) == (80, 4)


def test_the_command_starts_a_pass_that_a_worker_ends(worker: Any, capsys: Any) -> None:
    make_items(9)
    worker()
    call_command("backfill", "run", "fill", "--wait")
    assert changes() == [1] * 9


def test_a_run_that_is_waited_for_ends_non_zero_when_its_pass_does_not_complete(
    worker: Any,
) -> None:
    make_items(4000)
    worker()
    run = worker("run", "fill_slowly", "--wait", command="backfill")
    until(lambda: sum(changes()) > 2)
    call_command("backfill", "pause", "fill_slowly")
    assert run.wait() == 1
    assert "action=paused" in run.output
