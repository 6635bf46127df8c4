"""An idle worker: how soon it starts what was committed, and what it costs meanwhile."""

from __future__ import annotations

import random
import statistics
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import psycopg
from django.db import transaction

from django_jobs import enqueue
from django_jobs.models import Job
from tests.benchmarks import raw as plain
from tests.benchmarks.counters import counted
from tests.benchmarks.figures import Aim, line, note, section
from tests.benchmarks.ground import Worker
from tests.benchmarks.jobs import started
from tests.benchmarks.plan import Bench


def pickup(bench: Bench) -> None:
    """From the commit of the enqueuing transaction to the first line of the body."""
    count = bench.sizes.pickups
    section(f"pickup on an idle worker, {count} jobs: commit → body, ms")
    plain.empty(bench.raw)
    plain.settle_down(bench.raw, quick=bench.quick)
    with Worker(f"--threads={bench.threads}") as worker:
        worker.until_listening(bench.raw)
        _ours(5)
        ours = _ours(count)
    raw = _raw(bench, count)
    percentiles("raw: LISTEN, claim one", raw)
    percentiles("runworker", ours, raw, (Aim(5, at_most=True), None, Aim(15, at_most=True)))
    note("raw inserts the job itself; ours relays it first: two more commits to wait for")


def _ours(count: int) -> list[float]:
    committed: list[float] = []
    ids: list[uuid.UUID] = []
    for _ in range(count):
        time.sleep(random.uniform(0.02, 0.08))
        with transaction.atomic():
            transaction.on_commit(lambda: committed.append(time.monotonic()))
            ids.append(enqueue(started).id)
    deadline = time.monotonic() + 30
    while Job.objects.filter(id__in=ids, state="done").count() < count:
        if time.monotonic() > deadline:
            raise RuntimeError("the worker did not run them within 30 s")
        time.sleep(0.1)
    begun = dict(Job.objects.filter(id__in=ids).values_list("id", "result"))
    return [(begun[i] - at) * 1000 for i, at in zip(ids, committed, strict=True)]


def _raw(bench: Bench, count: int) -> list[float]:
    """A thread that listens and claims; the job is inserted and announced in one transaction."""
    plain.empty(bench.raw)
    begun: list[float] = []
    ready = threading.Event()

    def listen() -> None:
        with plain.connect(bench.url) as claimer, plain.connect(bench.url) as listener:
            listener.execute("LISTEN raw")
            ready.set()
            for _ in listener.notifies(timeout=30, stop_after=count):
                claimer.execute(plain.CLAIM, (uuid.uuid4(), 1)).fetchall()
                begun.append(time.monotonic())

    thread = threading.Thread(target=listen)
    thread.start()
    ready.wait()
    committed = []
    for row in plain.entries(plain.JOB, count):
        time.sleep(random.uniform(0.02, 0.08))
        with bench.raw.transaction():
            plain.insert_one_by_one(bench.raw, plain.JOB, [row])
            bench.raw.execute("NOTIFY raw")
        committed.append(time.monotonic())
    thread.join()
    return [max(0.0, b - c) * 1000 for b, c in zip(begun, committed, strict=True)]


def percentiles(
    label: str,
    values: Sequence[float],
    beside: Sequence[float] | None = None,
    aims: Sequence[Aim | None] = (None, None, None),
) -> None:
    for percent, aim in zip((50, 95, 99), aims, strict=True):
        line(
            f"{label}, p{percent}",
            [_at(values, percent)],
            beside=None if beside is None else [_at(beside, percent)],
            aim=aim,
            aim_on_ratio=False,
        )


def _at(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def idle(bench: Bench) -> None:
    """What a worker costs that has nothing to do."""
    seconds = bench.sizes.idle_seconds
    section(f"an idle worker, over {seconds:g} s")
    plain.empty(bench.raw)
    with Worker(f"--threads={bench.threads}") as worker:
        worker.until_listening(bench.raw)
        time.sleep(min(seconds, 5.0))
        processor, began = worker.cpu(), time.monotonic()
        with counted(bench.raw, bench.statements) as cost:
            time.sleep(seconds)
        processor, window = worker.cpu() - processor, time.monotonic() - began
        supervisor, child = worker.memory()
        sessions = _sessions(bench.raw)
    queries = cost.transactions if cost.statements is None else cost.statements
    line("queries a second", [max(0.0, queries) / window], aim=Aim(4, True), aim_on_ratio=False)
    line("processor, % of one core", [processor / window * 100])
    line("memory of the worker process, MB", [child])
    line("memory of the supervisor, MB", [supervisor])
    line("database sessions", [float(sessions)])


def _sessions(raw: psycopg.Connection[Any]) -> int:
    row = raw.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND client_port IS NOT NULL AND application_name <> 'bench'"
    ).fetchone()
    assert row is not None
    return int(row[0])
