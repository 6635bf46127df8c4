"""Which transactions are older than a moment, so that a sweep knows when it has seen their rows.

An old transaction may commit a row whose key a sweep has passed already. Once every transaction
that was open at a moment has ended, whatever they wrote is visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connections

from django_jobs.models import picking


@dataclass(frozen=True, slots=True)
class Horizon:
    """A moment in the life of one database: no transaction below ``number`` begins after it."""

    number: int
    at: datetime


def horizon(alias: str) -> Horizon | None:
    """Now. ``None`` on SQLite, where whoever gets to write knows that all others have ended."""
    if not picking.is_postgres(alias):
        return None
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, statement_timestamp()"
        )
        return Horizon(*cursor.fetchone())


def older_than(alias: str, moment: Horizon) -> str:
    """The oldest transaction from before ``moment`` that is still open, as text; ``""`` if none.

    Those with a number are seen whoever runs them, in prepared transactions too. One that has not
    written yet has no number: it is seen by its start, if the role may see that.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint < %s",
            (moment.number,),
        )
        numbered = bool(cursor.fetchone()[0])
        cursor.execute(
            "SELECT pid, application_name, xact_start FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend' AND xact_start < %s ORDER BY xact_start LIMIT 1",
            (moment.at,),
        )
        found = cursor.fetchone()
    if found is not None:
        name = found[1] or "without a name"
        return f"session {found[0]} ({name}), in a transaction since {found[2]:%Y-%m-%d %H:%M:%S}"
    return "a transaction of another role or database, or a prepared one" if numbered else ""
