"""What the figures stand on: the machine, the server, its settings, its commits."""

from __future__ import annotations

import os
import platform
import statistics
import time

import django
import psutil
import psycopg

from tests.benchmarks.figures import line, note, section
from tests.benchmarks.plan import Bench

SETTINGS = (
    "fsync", "synchronous_commit", "full_page_writes", "wal_level", "shared_buffers",
    "max_wal_size", "commit_delay", "autovacuum", "autovacuum_naptime", "track_commit_timestamp",
)  # fmt: skip


def describe(bench: Bench, server: str) -> None:
    """One look at everything that a figure depends on and that is not ours."""
    raw = bench.raw
    section("what this ran on")
    memory = psutil.virtual_memory().total / 2**30
    note(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB")
    note(
        f"Python {platform.python_version()}, Django {django.__version__}, "
        f"psycopg {psycopg.__version__} ({psycopg.pq.__impl__})"
    )
    note(server)
    shown = []
    for name in SETTINGS:
        row = raw.execute("SELECT current_setting(%s)", (name,)).fetchone()
        assert row is not None
        shown.append(f"{name}={row[0]}")
    for start in range(0, len(shown), 3):
        note(", ".join(shown[start : start + 3]))
    note("load before the run: " + " ".join(f"{load:.2f}" for load in os.getloadavg()))
    noise(bench)


def noise(bench: Bench) -> None:
    """How steady the machine is: the same work over and over."""
    rounds = max(5, bench.rounds)
    commits = [_commit(bench) for _ in range(rounds)]
    line("one commit, ms (p50 of 100)", commits)
    line("one round trip, ms (p50 of 200)", [_round_trip(bench) for _ in range(rounds)])
    line("Python, 1,000,000 additions, ms", [_python() for _ in range(rounds)])


def _commit(bench: Bench) -> float:
    bench.raw.execute("CREATE TABLE IF NOT EXISTS bench_commit (n int)")
    took = []
    for number in range(100):
        started = time.perf_counter()
        bench.raw.execute("INSERT INTO bench_commit VALUES (%s)", (number,))
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1000


def _round_trip(bench: Bench) -> float:
    took = []
    for _ in range(200):
        started = time.perf_counter()
        bench.raw.execute("SELECT 1")
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1000


def _python() -> float:
    started = time.perf_counter()
    total = 0
    for number in range(1_000_000):
        total += number
    return (time.perf_counter() - started) * 1000
