"""An overflow under real processes: bounded, fair, and nothing accepted is lost to kill -9."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.db.models.functions import Now

from django_jobs import enqueue_many, get
from django_jobs.models import Job, publishing
from tests.app.jobs import noop, record
from tests.app.models import Ledger
from tests.waiting import until
from tests.workers import ROOT, environment

ENQUEUER = """
import sys, django
django.setup()
from django.db import transaction
from django_jobs import enqueue, enqueue_many
from tests.app.jobs import noop
name, number = sys.argv[1], 0
job = noop.using(tenant=name)
while True:
    number += 1
    if number % 3 == 0:
        accepted = [enqueue(job, number)]
    elif number % 3 == 1:
        with transaction.atomic():
            accepted = [enqueue(job, number) for _ in range(3)]
    else:
        accepted = enqueue_many(job.call(number) for _ in range(5))
    print(*(one.id for one in accepted), flush=True)
"""


class Enqueuer:
    """A process that enqueues without end, and writes each id down once it was accepted."""

    def __init__(self, folder: Path, name: str, limit: int) -> None:
        self.accepted = folder / f"accepted-{name}"
        with self.accepted.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", ENQUEUER, name],
                cwd=ROOT,
                env=environment({"MAX_READY": limit}),
                stdin=subprocess.DEVNULL,
                stdout=output,
            )

    def ids(self) -> list[str]:
        """What it wrote in full lines: the last one may be torn."""
        text = self.accepted.read_text()
        return text[: text.rfind("\n") + 1].split()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)


def test_enqueuers_and_relays_killed_at_random_lose_nothing_that_was_accepted(
    worker: Any, tmp_path: Path
) -> None:
    """Cases 97, 106 to 108, 112, 135, 136, R30, R36: nothing lives in a process only."""
    chance = random.Random(5)
    limit = 40
    started = [worker("--threads", "2", MAX_READY=limit, LEASE=2) for _ in range(2)]
    workers = list(started)
    enqueuers = [Enqueuer(tmp_path, f"e{number}", limit) for number in range(2)]
    gone: list[Enqueuer] = []
    deepest = 0
    try:
        for number in range(6):
            target = Job.objects.count() + chance.randrange(60, 200)
            until(lambda target=target: Job.objects.count() >= target)
            deepest = max(deepest, Job.objects.filter(state="ready", blocked=False).count())
            if number % 2:
                victim = enqueuers.pop(chance.randrange(2))
                victim.kill()
                gone.append(victim)
                enqueuers.append(Enqueuer(tmp_path, f"f{number}", limit))
            else:
                workers.pop(chance.randrange(2)).kill()
                started.append(worker("--threads", "2", MAX_READY=limit, LEASE=2))
                workers.append(started[-1])
    finally:
        for one in enqueuers:
            one.kill()
    accepted = {id_ for one in (*gone, *enqueuers) for id_ in one.ids()}
    assert len(accepted) > 300
    # What a killed relay held is free when its claim runs out, half a minute later.
    publishing.outbox("default").exclude(claimed_until=None).update(claimed_until=Now())
    until(lambda: not publishing.outbox("default").pending().exists(), 60)
    until(lambda: not Job.objects.exclude(state="done").exists(), 60)
    ended = {str(id_) for id_ in Job.objects.filter(state="done").values_list("id", flat=True)}
    assert accepted <= ended
    assert any("queue default overflows:" in one.output for one in started)
    # Each process believes its count for a second; four of them, a chunk each.
    assert deepest < limit * 10
    for one in workers:
        one.wait_for("started: queues")  # Before that nobody listens to a signal.
        assert one.stop() == 0


def test_a_fan_out_of_one_tenant_does_not_hold_up_another_s_job(
    jobs_alias: str, worker: Any
) -> None:
    crowd = enqueue_many(noop.using(tenant="a").call(n) for n in range(1_500))
    running = worker("--threads", "1", MAX_READY=50)
    until(lambda: Job.objects.filter(state="done").count() > 50)
    alone = enqueue_many([record.using(tenant="b").call("alone")])[0]
    until(lambda: get(alone.id).state == "done")
    assert Ledger.objects.filter(note="alone").count() == 1
    running.wait_for("queue default overflows:")
    until(lambda: Job.objects.filter(state="done").count() == 1_501, 60)
    running.wait_for("queue default has room again")
    assert running.stop() == 0
    assert {get(one.id).state for one in crowd[::100]} == {"done"}
    overtaken = Job.objects.filter(started_at__gt=Job.objects.get(id=alone.id).started_at)
    assert overtaken.count() > 300
