"""Draining: one real worker process beside a raw loop, on an empty table and on loaded ones."""

from __future__ import annotations

import time

import psycopg

from tests.benchmarks import raw as plain
from tests.benchmarks.counters import Cost, counted
from tests.benchmarks.figures import Aim, line, note, section
from tests.benchmarks.ground import Worker
from tests.benchmarks.plan import Bench

_FIRST_TO_LAST = f"""
SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8, count(*)
FROM {plain.JOB} WHERE state = 'done' AND started_at >= %s
"""


def empty_table(bench: Bench) -> None:
    """The figure that the others are held against."""
    count = bench.sizes.drained
    section(f"drain of {count:,} no-op jobs, jobs/s")
    raw, ours = [], []
    for _ in range(bench.rounds):
        plain.empty(bench.raw)
        raw.append(_raw_rate(bench, count))
        ours.append(_bare(bench))
    line("raw loop, 100 a time, one session", raw)
    line(f"runworker, {bench.threads} threads", ours, beside=raw, aim=Aim(0.7))
    note("first claim to last settle; hygiene and signals are on, of log lines 100 a second")
    if not bench.quick:
        _costs(bench, count)


def _costs(bench: Bench, count: int) -> None:
    raw_cost, cost = Cost(), Cost()
    plain.empty(bench.raw)
    _raw_rate(bench, count, raw_cost)
    plain.empty(bench.raw)
    _rate(bench, count, cost)
    line("WAL bytes per job: raw", [raw_cost.wal / count])
    line("WAL bytes per job: runworker", [cost.wal / count], beside=[raw_cost.wal / count])
    line("transactions per 1,000 jobs: raw", [raw_cost.transactions / count * 1000])
    line("transactions per 1,000: runworker", [cost.transactions / count * 1000])
    if cost.statements is not None and raw_cost.statements is not None:
        line("statements per 1,000 jobs: raw", [raw_cost.statements / count * 1000])
        line("statements per 1,000: runworker", [cost.statements / count * 1000])
    else:
        note("statements are not counted: this server does not load pg_stat_statements")


def finished_rows(bench: Bench) -> None:
    """History must not slow the present."""
    _beside_others(bench, "finished", bench.sizes.finished)


def future_rows(bench: Bench) -> None:
    """Nor must what is due later."""
    _beside_others(bench, "future", bench.sizes.future)


def _beside_others(bench: Bench, kind: str, others: int) -> None:
    count = bench.sizes.drained
    section(f"drain of {count:,} beside {others:,} {kind} rows, jobs/s")
    bare, loaded = [], []
    for _ in range(bench.rounds):
        bare.append(_bare(bench))
    plain.empty(bench.raw)
    if kind == "finished":
        plain.fill(bench.raw, others, state="done", due=-3600)
    else:
        plain.fill(bench.raw, others, state="delayed", due=86_400)
    for _ in range(bench.rounds):
        loaded.append(_rate(bench, count))
    raw = [_raw_rate(bench, count) for _ in range(bench.rounds)]
    line("runworker, empty table", bare)
    line(f"runworker, {kind} rows", loaded, beside=bare, aim=Aim(0.8))
    line(f"raw loop, {kind} rows", raw)


def pinned_snapshot(bench: Bench) -> None:
    """Another session keeps every dead row from being vacuumed."""
    sizes = bench.sizes
    section(f"drain while another session holds a snapshot for {sizes.pinned_seconds:g} s, jobs/s")
    bare, large_bare = [], []
    for _ in range(bench.rounds):
        bare.append(_bare(bench))
    plain.empty(bench.raw)
    large_bare.append(_rate(bench, sizes.pinned))
    plain.empty(bench.raw)
    with psycopg.connect(bench.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM django_jobs_attempt")
        until = time.monotonic() + sizes.pinned_seconds
        large = [_rate(bench, sizes.pinned, tidy=False)]
        time.sleep(max(0.0, until - time.monotonic()))
        late = [_rate(bench, sizes.drained, tidy=False) for _ in range(bench.rounds)]
        raw = [_raw_rate(bench, sizes.drained, tidy=False) for _ in range(bench.rounds)]
    line(f"runworker, {sizes.pinned:,}, no snapshot", large_bare)
    line(f"runworker, {sizes.pinned:,}, snapshot", large, beside=large_bare, aim=Aim(0.5))
    line(f"runworker, {sizes.drained:,}, no snapshot", bare)
    line(f"runworker, {sizes.drained:,}, at the end", late, beside=bare, aim=Aim(0.5))
    line(f"raw loop, {sizes.drained:,}, at the end", raw)


def _bare(bench: Bench) -> float:
    """The rate on an empty table: taken anew for each comparison, since machines drift."""
    if bench.quick and bench.bare is not None:
        return bench.bare
    plain.empty(bench.raw)
    bench.bare = _rate(bench, bench.sizes.drained)
    return bench.bare


def _raw_rate(bench: Bench, count: int, cost: Cost | None = None, *, tidy: bool = True) -> float:
    _prepare(bench, count, tidy)
    if cost is None:
        seconds, done = plain.drain(bench.raw)
    else:
        with counted(bench.raw, bench.statements) as measured:
            seconds, done = plain.drain(bench.raw)
        cost.__dict__.update(measured.__dict__)
    assert done == count
    return count / seconds


def _rate(bench: Bench, count: int, cost: Cost | None = None, *, tidy: bool = True) -> float:
    _prepare(bench, count, tidy)
    row = bench.raw.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    if cost is None:
        _drain(bench)
    else:
        with counted(bench.raw, bench.statements) as measured:
            _drain(bench)
        cost.__dict__.update(measured.__dict__)
    told = bench.raw.execute(_FIRST_TO_LAST, row).fetchone()
    assert told is not None and told[1] == count, told
    return float(count / told[0])


def _drain(bench: Bench) -> None:
    with Worker("--drain", f"--threads={bench.threads}") as worker:
        worker.wait()


def _prepare(bench: Bench, count: int, tidy: bool) -> None:
    plain.fill(bench.raw, count)
    if tidy:
        plain.settle_down(bench.raw, quick=bench.quick)
