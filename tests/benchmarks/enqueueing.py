"""Enqueue: one by one, many at once, and what it takes until they are published."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connection, transaction

from django_jobs import connections as sessions
from django_jobs import enqueue, enqueue_many
from django_jobs.loops import relay
from tests.benchmarks import raw as plain
from tests.benchmarks.counters import counted
from tests.benchmarks.figures import Aim, line, note, section
from tests.benchmarks.jobs import keyed, noop
from tests.benchmarks.plan import Bench


def one_by_one(bench: Bench) -> None:
    """``enqueue`` outside a transaction, and many inside one."""
    singles, inside = bench.sizes.singles, bench.sizes.inside
    section(f"enqueue, {singles:,} times in autocommit (published at once), calls/s")
    rounds = in_turns(
        bench,
        lambda: plain.insert_one_by_one(bench.raw, plain.JOB, plain.entries(plain.JOB, singles)),
        lambda: _timed(lambda: [enqueue(noop, n) for n in range(singles)]),
    )
    raw, ours = ([singles / s for s in seconds] for seconds in rounds)
    line("raw INSERT into the job table", raw)
    line("enqueue()", ours, beside=raw)

    section(f"enqueue, {inside:,} times in one transaction (staged), calls/s")

    def raw_inside() -> float:
        rows = plain.entries(plain.OUTBOX, inside)
        started = time.perf_counter()
        with bench.raw.transaction():
            plain.insert_one_by_one(bench.raw, plain.OUTBOX, rows)
        return time.perf_counter() - started

    def inside_of(job: Any) -> Callable[[], float]:
        def ours() -> None:
            with transaction.atomic():
                for number in range(inside):
                    enqueue(job, number)

        return lambda: _timed(ours)

    rounds = in_turns(bench, raw_inside, inside_of(noop), inside_of(keyed))
    raw, ours, deduped = ([inside / s for s in seconds] for seconds in rounds)
    line("raw INSERT into the outbox", raw)
    line("enqueue() in atomic(), PER_CALL", ours, beside=raw, aim=Aim(0.5))
    line("enqueue() in atomic(), a key each", deduped, beside=raw, aim=Aim(0.5))


def many(bench: Bench) -> None:
    """``enqueue_many``, and the relay's part of it."""
    count = bench.sizes.many
    section(f"enqueue_many of {count:,}, jobs/s")
    staged: list[float] = []
    published: list[float] = []
    raw_jobs: list[float] = []
    raw_outbox: list[float] = []
    for _ in range(bench.rounds):
        for table, found in ((plain.OUTBOX, raw_outbox), (plain.JOB, raw_jobs)):
            _fresh(bench)
            rows = plain.entries(table, count)
            found.append(count / plain.insert_at_once(bench.raw, table, rows))
        _fresh(bench)
        took = _timed(lambda: enqueue_many(noop.call(n) for n in range(count)))
        staged.append(count / took)
        published.append(count / (took + _timed(_relay)))
    line("raw unnest into the outbox", raw_outbox)
    line("raw unnest into the job table", raw_jobs)
    line("enqueue_many, staged", staged, beside=raw_outbox, aim=Aim(0.5))
    line("enqueue_many until published", published, beside=raw_jobs)
    note(f"published by one relay, {relay.BATCH} at a time, after the transaction of enqueue_many")
    _costs(bench, count)


def _costs(bench: Bench, count: int) -> None:
    _fresh(bench)
    with counted(bench.raw, bench.statements) as inserted:
        plain.insert_at_once(bench.raw, plain.JOB, plain.entries(plain.JOB, count))
    _fresh(bench)
    with counted(bench.raw, bench.statements) as staged:
        enqueue_many(noop.call(n) for n in range(count))
    with counted(bench.raw, bench.statements) as published:
        _relay()
    line("WAL bytes per job: raw, job table", [inserted.wal / count])
    line("WAL bytes per job: staged", [staged.wal / count], beside=[inserted.wal / count])
    line("WAL bytes per job: relayed", [published.wal / count], beside=[inserted.wal / count])
    line("transactions per 1,000 relayed", [published.transactions / count * 1000])
    if published.statements is not None:
        line("statements per 1,000 relayed", [published.statements / count * 1000])


def _relay() -> None:
    """In a thread with a connection of its own, as in a worker."""

    def publish() -> None:
        sessions.own_connection("default")
        while relay.tick("default"):
            pass
        sessions.close_all()

    thread = threading.Thread(target=publish)
    thread.start()
    thread.join()


def _fresh(bench: Bench) -> None:
    plain.empty(bench.raw)
    plain.settle_down(bench.raw, quick=bench.quick)


def _timed(work: Callable[[], object]) -> float:
    connection.ensure_connection()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(bench: Bench, *works: Callable[[], float]) -> list[list[float]]:
    """The seconds of each in turn, on an empty table."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(bench.rounds):
        for work, found in zip(works, seconds, strict=True):
            _fresh(bench)
            found.append(work())
    return seconds
