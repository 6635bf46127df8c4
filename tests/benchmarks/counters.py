"""What the server says it did meanwhile: WAL, transactions, statements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from tests.benchmarks.raw import Raw


@dataclass
class Cost:
    """Of a block of code: bytes of WAL, transactions, and statements where they are counted."""

    wal: float = 0.0
    transactions: float = 0.0
    statements: float | None = None


def count_statements(raw: Raw) -> bool:
    """Whether this server counts statements."""
    try:
        raw.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        raw.execute("SELECT count(*) FROM pg_stat_statements")
    except psycopg.Error:
        return False
    return True


@contextmanager
def counted(raw: Raw, statements: bool) -> Iterator[Cost]:
    """Measures its block. A session tells what it did a moment late, so this waits a moment."""
    cost = Cost()
    before = _read(raw, statements)
    yield cost
    raw.execute("SELECT pg_stat_clear_snapshot()")
    time.sleep(1.2)
    after = _read(raw, statements)
    cost.wal = after[0] - before[0]
    cost.transactions = after[1] - before[1] - 3
    cost.statements = after[2] - before[2] - 3 if statements else None


def _read(raw: Raw, statements: bool) -> tuple[float, float, float]:
    row = raw.execute(
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8, "
        "(xact_commit + xact_rollback)::float8 FROM pg_stat_database "
        "WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    calls = 0.0
    if statements:
        told = raw.execute(
            "SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements "
            "WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).fetchone()
        assert told is not None
        calls = told[0]
    return row[0], row[1], calls
