"""Lanes with real workers: the newest text is what ends up indexed, whatever happens on the way."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs import enqueue, get
from django_jobs.models import Job, Outbox
from django_jobs.states import LIVE
from tests.app.jobs import reindex
from tests.app.models import Ledger
from tests.waiting import until


def notes() -> list[str]:
    return list(Ledger.objects.order_by("id").values_list("note", flat=True))


def quiet() -> bool:
    live = Job.objects.filter(state__in=LIVE)
    return not (live.exists() or Outbox.objects.filter(outcome=None).exists())


def test_a_running_older_job_stops_when_a_newer_one_is_published(worker: Any) -> None:
    """R2, 64: told by the database alone, well within a heartbeat of a minute's lease."""
    running = worker(LEASE=60)
    older = enqueue(reindex, 1, "a", 60.0)
    until(lambda: "start a" in notes())
    newer = enqueue(reindex, 1, "b")
    asked = time.monotonic()
    until(lambda: get(newer.id).state == "done", 20)
    until(lambda: Job.objects.get(id=older.id).worker == "", 20)
    assert time.monotonic() - asked < 10
    assert notes() == ["start a", "start b", "end b"]
    stopped = Job.objects.get(id=older.id)
    assert (stopped.state, stopped.superseded_by) == ("cancelled", newer.id)
    running.wait_for("superseded tests.app.jobs.reindex")
    assert running.stop() == 0


def test_a_body_that_never_looks_keeps_its_thread_and_ends_superseded(worker: Any) -> None:
    """77, 68: what it returned counts for nothing."""
    from tests.app.jobs import stubborn

    running = worker("--threads", "2", LEASE=60)
    older = enqueue(stubborn, 1, "a", 1.5)
    until(lambda: "start a" in notes())
    newer = enqueue(stubborn, 1, "b", 0.0)
    until(lambda: get(newer.id).state == "done", 20)
    assert "end a" not in notes(), "two threads: the newer does not wait for the older"
    until(lambda: Job.objects.get(id=older.id).worker == "", 20)
    assert "end a" in notes()
    job = Job.objects.get(id=older.id)
    assert (job.state, job.result, job.superseded_by) == ("cancelled", None, newer.id)
    assert running.stop() == 0


def test_twenty_edits_in_quick_succession_end_with_the_last_text(
    worker: Any, jobs_alias: str
) -> None:
    """R44 aside, d1: each edit commits with its enqueue; one is done, with the last text."""
    running = worker("--threads", "2")
    running.wait_for("started: queues")
    ids = []
    for edit in range(20):
        with transaction.atomic(using=jobs_alias):
            ids.append(enqueue(reindex, 1, str(edit), 0.3).id)
        time.sleep(0.02)
    until(lambda: get(ids[-1]).state == "done")
    states = [get(id_).state for id_ in ids]
    assert states[-1] == "done"
    assert get(ids[-1]).result == "19"
    assert set(states[:-1]) <= {"cancelled", "displaced", "done"}
    assert running.stop() == 0


@pytest.mark.soak
def test_the_newest_survives_killed_workers_and_killed_publishers(worker: Any) -> None:
    """I5: of every lane the job published last ends done, whoever was killed meanwhile."""
    workers = [worker("--threads", "4", LEASE=2) for _ in range(2)]
    stop = threading.Event()

    def edit(seed: int) -> None:
        chooser = random.Random(seed)
        while not stop.is_set():
            with transaction.atomic():
                enqueue(reindex, chooser.randrange(20), str(time.monotonic_ns()), 0.2)
            time.sleep(chooser.uniform(0, 0.02))
        connections.close_all()

    editors = [threading.Thread(target=edit, args=(seed,)) for seed in range(2)]
    for editor in editors:
        editor.start()
    for _ in range(8):
        time.sleep(3)
        victim = workers.pop(0)
        victim.kill()
        workers.append(worker("--threads", "4", LEASE=2))
    stop.set()
    for editor in editors:
        editor.join()
    until(quiet, 120)
    for lane in range(20):
        newest = Job.objects.filter(lane=str(lane)).order_by("-lane_token").first()
        assert newest is None or newest.state == "done", lane
