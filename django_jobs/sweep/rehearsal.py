"""Some pages for show: handled in a transaction that is rolled back, and looked at."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any

from django.db import connections, transaction

from django_jobs.backfills import Backfill as Declaration
from django_jobs.backfills import Page
from django_jobs.errors import BackfillRefused
from django_jobs.models import picking
from django_jobs.sweep.planning import expected_rows

_LISTED = 20
_NUMBERS = re.compile(r"\s+")


class Statements:
    """Counts what is executed, by its text and without its values."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def __call__(  # noqa: D102 - Django's protocol of an execute wrapper
        self, execute: Any, sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        self.counted[_NUMBERS.sub(" ", str(sql))[:200]] += 1
        return execute(sql, params, many, context)


def rehearse(declared: Declaration, tenant: str = "", *, pages: int = 3) -> dict[str, Any]:
    """What up to ``pages`` pages would do: rows changed, statements, locks, seconds, an estimate.

    All of it is rolled back; what the body does outside the database happens. Raises
    ``BackfillRefused`` for ``atomic=False``, whose effects nothing takes back.
    """
    if not declared.declared.atomic:
        raise BackfillRefused(
            "state", f"{declared.name} is atomic=False: nothing would take back what it does."
        )
    keyset = declared.keyset(tenant)
    statements, rows, handled, cursor = Statements(), 0, 0, None
    with transaction.atomic(using=keyset.alias):
        before = _changed(keyset.alias)
        began = time.monotonic()
        with connections[keyset.alias].execute_wrapper(statements):
            for _ in range(pages):
                found = keyset.page(cursor, None, declared.declared.batch)
                if not found:
                    break
                declared.handle(Page(keyset, [place[0] for place in found], tenant))
                cursor, rows, handled = keyset.cursor(found[-1]), rows + len(found), handled + 1
        seconds = time.monotonic() - began
        changed, locks = _changed(keyset.alias) - before, _locks(keyset.alias)
        transaction.set_rollback(True, using=keyset.alias)
    return {
        "pages": handled,
        "rows": rows,
        "rows_changed": changed,
        "seconds": round(seconds, 3),
        "statements": [{"sql": s, "times": n} for s, n in statements.counted.most_common(_LISTED)],
        "locks": locks,
        "estimated_seconds": _estimate(declared, expected_rows(keyset), rows, handled, seconds),
    }


def _estimate(
    declared: Declaration, expected: int | None, rows: int, pages: int, seconds: float
) -> float | None:
    """How long all of it would take, by these pages and the rate; ``None``: unknown."""
    if not rows or expected is None:
        return None
    each, rate = seconds / pages, declared.declared.rate
    if rate is not None:
        by_rate = rows / pages / rate if declared.declared.rate_per == "rows" else 1 / rate
        each = max(each, by_rate)
    return round(each * expected * pages / rows, 3)


def _changed(alias: str) -> int:
    """Rows inserted, updated and deleted by this transaction (PostgreSQL), or connection."""
    connection = connections[alias]
    connection.ensure_connection()
    if not picking.is_postgres(alias):
        return int(connection.connection.total_changes)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)"
            " FROM pg_stat_xact_user_tables"
        )
        return int(cursor.fetchone()[0])


def _locks(alias: str) -> list[str]:
    """The locks on tables that the transaction holds."""
    if not picking.is_postgres(alias):
        return []
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT relation::regclass::text, mode FROM pg_locks JOIN pg_class c"
            " ON c.oid = relation WHERE pid = pg_backend_pid() AND relkind = 'r'"
            " AND relnamespace <> 'pg_catalog'::regnamespace ORDER BY 1, 2"
        )
        return [f"{table}: {mode}" for table, mode in cursor.fetchall()]
