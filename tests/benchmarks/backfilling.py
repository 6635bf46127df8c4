"""Backfills: the cost of the first and the last page, and of the loop that one writes by hand."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.db import models

from tests.benchmarks.figures import Aim, line, note, section
from tests.benchmarks.plan import Bench

BATCH = 1_000
SAMPLE = 20
"""Pages at each end whose median is compared."""


class Row(models.Model):
    """A row of a table as wide as many are."""

    filled = models.IntegerField(null=True)
    text = models.TextField()

    class Meta:
        managed = False
        app_label = "benchmarks"
        db_table = "bench_row"

    def __str__(self) -> str:
        return f"row {self.pk}"


def pages(bench: Bench) -> None:
    """A whole pass beside a loop of SELECT keys, UPDATE, COMMIT in plain psycopg."""
    from django_jobs import backfill, definitions

    definitions.allow(__name__)
    made = backfill(source=lambda: Row.objects.only("pk"), batch=BATCH, rate=None, name="bench")(
        _fill
    )
    rows = bench.sizes.backfilled
    section(f"backfill of {rows:,} rows in pages of {BATCH:,}, ms/page")
    by_hand, ours = [], []
    for _ in range(bench.rounds):
        by_hand += _measured(bench, rows, lambda: _by_hand(bench))
        ours += _measured(bench, rows, lambda: _pass(made))
    line("by hand", by_hand)
    line("a pass of a backfill", ours, beside=by_hand, aim=Aim(1.15, at_most=True))
    line(f"its first {SAMPLE} pages", _took[:SAMPLE])
    last = _took[-SAMPLE - 1 : -1]
    line(f"its last {SAMPLE} pages", last, beside=_took[:SAMPLE], aim=Aim(1.2, at_most=True))
    note("rate=None, nothing else runs; the body is page.queryset.update(...)")


_began: list[float] = []
_took: list[float] = []


def _fill(page: models.QuerySet[Row]) -> None:
    now = time.perf_counter()
    if _began:
        _took.append((now - _began[-1]) * 1e3)
    _began.append(now)
    page.queryset.update(filled=1)  # type: ignore[attr-defined]


def _measured(bench: Bench, rows: int, work: Callable[[], None]) -> list[float]:
    bench.raw.execute("DROP TABLE IF EXISTS bench_row")
    bench.raw.execute(
        "CREATE TABLE bench_row (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " filled int, text text NOT NULL)"
    )
    bench.raw.execute(
        "INSERT INTO bench_row (text) SELECT repeat('x', 100) FROM generate_series(1, %s)", (rows,)
    )
    bench.raw.execute("VACUUM ANALYZE bench_row")
    bench.raw.execute("CHECKPOINT")
    _began.clear()
    _took.clear()
    started = time.perf_counter()
    work()
    return [(time.perf_counter() - started) * 1e3 / (rows / BATCH)]


def _pass(made: object) -> None:
    from django_jobs.models import Backfill
    from django_jobs.operations.backfilling import start_backfill
    from django_jobs.testing import drain

    started = start_backfill(made, force=True)  # type: ignore[arg-type]
    drain()
    started.refresh_from_db()
    assert started.state == "completed", started.error
    Backfill.objects.all().delete()


def _by_hand(bench: Bench) -> None:
    last = 0
    while True:
        with bench.raw.transaction():
            found = bench.raw.execute(
                "SELECT id FROM bench_row WHERE id > %s ORDER BY id LIMIT %s", (last, BATCH)
            ).fetchall()
            if not found:
                return
            ids = [row[0] for row in found]
            bench.raw.execute("UPDATE bench_row SET filled = 1 WHERE id = ANY(%s)", (ids,))
        last = ids[-1]
