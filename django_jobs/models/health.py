"""How a PostgreSQL server does, from what it tells everyone: no extension is needed."""

from __future__ import annotations

from django.db import connections

from django_jobs.backfills import Health


def fault(alias: str, health: Health) -> str:
    """What is not well on ``alias`` (PostgreSQL) by the limits of ``health``; ``""`` for nothing.

    What the role may not see (replicas, without ``pg_monitor``) is taken for well.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(
            """
            SELECT
                (SELECT extract(epoch FROM max(replay_lag)) FROM pg_stat_replication),
                count(*) FILTER (WHERE wait_event_type = 'Lock'),
                extract(epoch FROM statement_timestamp() - min(xact_start))
            FROM pg_stat_activity
            WHERE datname = current_database() AND backend_type = 'client backend'
            """
        )
        lag, waits, age = cursor.fetchone()
    if health.replica_lag is not None and lag is not None and lag > health.replica_lag:
        return f"a replica is {lag:.0f} s behind (limit {health.replica_lag:g} s)"
    if health.lock_waits is not None and waits > health.lock_waits:
        return f"{waits} sessions wait for a lock (limit {health.lock_waits})"
    if health.transaction_age is not None and age is not None and age > health.transaction_age:
        return f"a transaction is open for {age:.0f} s (limit {health.transaction_age:g} s)"
    return ""
