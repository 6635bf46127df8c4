"""Steps: what one costs, what a replay costs, how soon an event wakes; many sleepers at once."""

from __future__ import annotations

import random
import time

from django.db import connection, transaction

from django_jobs import emit, enqueue, enqueue_many, get
from django_jobs.models import Job, Step
from django_jobs.testing import drain
from tests.benchmarks import raw as plain
from tests.benchmarks.figures import Aim, line, note, section
from tests.benchmarks.ground import Worker
from tests.benchmarks.jobs import awaits, naps, stepped
from tests.benchmarks.plan import Bench
from tests.benchmarks.waiting import percentiles


def steps(bench: Bench) -> None:
    """A step that does nothing: all of the time is its memory's."""
    count = bench.sizes.steps
    section(f"a job of {count} steps, each doing nothing: ms for each")
    plain.empty(bench.raw)
    Step.objects.all().delete()
    commits = []
    for _ in range(bench.rounds):
        began = time.perf_counter()
        for _ in range(count):
            bench.raw.execute("UPDATE django_jobs_lane SET last_token = 0 WHERE FALSE")
        commits.append((time.perf_counter() - began) / count * 1000)
    line("raw: a statement that does nothing", commits)
    for label, atomic, aim in (("step.run", False, 2.0), ("step.run(atomic=True)", True, None)):
        took, statements = [], 0.0
        for _ in range(bench.rounds):
            seconds, statements = _drained(count, atomic)
            took.append(seconds / count * 1000)
        line(label, took, beside=commits)
        bound = None if aim is None else Aim(aim, at_most=True)
        line(f"{label}, statements", [statements / count], aim=bound, aim_on_ratio=False)
    replays = [_replayed(count) * 1000 for _ in range(bench.rounds)]
    line(f"a replay of all {count}, ms", replays)


def _drained(count: int, atomic: bool) -> tuple[float, float]:
    job = enqueue(stepped, count, atomic, False)
    seen = 0

    def counting(execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        nonlocal seen
        seen += 1
        return execute(sql, params, many, context)

    with connection.execute_wrapper(counting):
        drain()
    return get(job.id).result, seen


def _replayed(count: int) -> float:
    job = enqueue(stepped, count, False, True)
    drain()
    took: float = get(job.id).result
    return took


def events(bench: Bench) -> None:
    """From the commit of an emit to the line after the wait, on an idle worker."""
    count = bench.sizes.pickups
    section(f"an event wakes a waiting job, {count} times: commit → body, ms")
    plain.empty(bench.raw)
    with Worker(f"--threads={bench.threads}") as worker:
        worker.until_listening(bench.raw)
        jobs = enqueue_many(awaits.call(number) for number in range(count))
        _until(lambda: Job.objects.filter(state="suspended").count() == count)
        committed: list[float] = []
        for number in range(count):
            time.sleep(random.uniform(0.02, 0.08))
            with transaction.atomic():
                transaction.on_commit(lambda: committed.append(time.monotonic()))
                emit("go", match=number)
        _until(lambda: Job.objects.filter(state="done").count() == count)
    woke = dict(Job.objects.values_list("id", "result"))
    late = [(woke[job.id] - at) * 1000 for job, at in zip(jobs, committed, strict=True)]
    percentiles("emit", late, None, (Aim(10, at_most=True), None, None))


def sleepers(bench: Bench) -> None:
    """Many jobs whose sleeps end in one and the same second."""
    count = bench.sizes.sleepers
    section(f"{count:,} sleeping jobs due in the same second, two statements each")
    plain.empty(bench.raw)
    plain.settle_down(bench.raw, quick=bench.quick)
    enqueue_many(naps.call(60.0) for _ in range(count))
    while bench.raw.execute("SELECT count(*) FROM django_jobs_job").fetchone() != (count,):
        drain(queues=["none"])
    # As one worker would have left them, all asleep until the same moment.
    due = bench.raw.execute("SELECT statement_timestamp() + interval '5 s'").fetchone()
    assert due is not None
    bench.raw.execute("UPDATE django_jobs_job SET state = 'suspended', run_at = %s", due)
    bench.raw.execute(
        "INSERT INTO django_jobs_step (run_id, name, job_id, position, kind, status, wake_at)"
        " SELECT run_id, 'nap', id, 1, 'sleep', 'waiting', %s FROM django_jobs_job",
        due,
    )
    with Worker(f"--threads={bench.threads}"):
        _until(lambda: Job.objects.filter(state="done").count() == count)
    row = bench.raw.execute(
        "SELECT extract(epoch FROM max(finished_at) - %s)::float8,"
        " extract(epoch FROM min(finished_at) - %s)::float8 FROM django_jobs_job",
        (*due, *due),
    ).fetchone()
    assert row is not None
    line("until the first one is done, s", [row[1]])
    line("until the last one is done, s", [row[0]])
    line("jobs a second", [count / row[0]])
    note("each loads its steps and stores that its sleep is over")


def _until(happened) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 120
    while not happened():
        if time.monotonic() > deadline:
            raise RuntimeError("the worker did not get that far within 120 s")
        time.sleep(0.1)
