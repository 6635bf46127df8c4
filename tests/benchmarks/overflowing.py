"""Overflow: what the relay pays for each job that it admits from a small and a large buffer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.benchmarks import raw as plain
from tests.benchmarks.figures import Aim, line, note, section
from tests.benchmarks.plan import Bench

CHUNK = 500
FULL = 9_500
"""Ready rows beside the buffer: the queue is nearly full, so counting it costs what it can cost."""

_FILL = f"""
INSERT INTO {plain.OUTBOX} (id, name, queue, buffer, tenant, idempotency_key, payload, batch)
SELECT gen_random_uuid(), %(name)s::text, 'default', 'default',
    't' || lpad((n %% %(tenants)s::int)::text, 6, '0'), 'k' || n, '{{"number":1}}',
    md5((n / 1000)::text)::uuid
FROM generate_series(1, %(count)s::int) AS n
"""
_MAKE_ROOM = f"""
DELETE FROM {plain.JOB} WHERE id IN (
    SELECT id FROM {plain.JOB} WHERE state = 'ready' ORDER BY priority, run_at, id LIMIT {CHUNK}
)
"""


def admission(bench: Bench) -> None:
    """The cost of an admitted job must not grow with the buffer, nor with its tenants."""
    small, large = bench.sizes.buffered_small, bench.sizes.buffered
    section(f"admission from {small:,} and from {large:,} buffered entries, µs/job")
    for tenants in (1, bench.sizes.buffer_tenants):
        claims, totals = {}, {}
        for count in (small, large):
            claims[count], totals[count] = _cost(bench, count, tenants)
        who = "1 tenant" if tenants == 1 else f"{tenants:,} tenants"
        line(f"claim, {small:,} of {who}", claims[small])
        line(f"claim, {large:,} of {who}", claims[large], beside=claims[small], aim=_FLAT)
        line(f"relay, {small:,} of {who}", totals[small])
        line(f"relay, {large:,} of {who}", totals[large], beside=totals[small], aim=_FLAT)
    note(
        f"a queue of {FULL:,} to {FULL + CHUNK:,} ready rows, counted before each chunk of {CHUNK}"
    )


_FLAT = Aim(1.5, at_most=True)


def _cost(bench: Bench, count: int, tenants: int) -> tuple[list[float], list[float]]:
    """Microseconds of the claim and of the whole tick, for each job, of a number of chunks."""
    from django_jobs import connections as sessions
    from django_jobs.loops import relay
    from django_jobs.models import depths
    from tests.benchmarks.jobs import noop

    plain.empty(bench.raw)
    plain.fill(bench.raw, FULL)
    bench.raw.execute(_FILL, {"name": noop.name, "tenants": tenants, "count": count})
    plain.settle_down(bench.raw, quick=bench.quick)
    sessions.own_connection("default")
    depths.forget()
    claims, totals = [], []
    chunks = min(bench.sizes.buffer_chunks, count // CHUNK)
    with _claims_timed() as seconds:
        for number in range(chunks):
            depths.expire()
            started = time.perf_counter()
            admitted = relay.tick("default")
            took = time.perf_counter() - started
            bench.raw.execute(_MAKE_ROOM)
            if number < 3 and not bench.quick:
                seconds.clear()
                continue  # The first ones plan their statements.
            totals.append(took / admitted * 1e6)
            claims.append(sum(seconds) / admitted * 1e6)
            seconds.clear()
    sessions.close_all()
    return claims, totals


@contextmanager
def _claims_timed() -> Iterator[list[float]]:
    from django.db import connections

    seconds: list[float] = []

    def timed(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        started = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            if "claimed_by =" in sql and "RECURSIVE" in sql:
                seconds.append(time.perf_counter() - started)

    with connections["default"].execute_wrapper(timed):
        yield seconds
