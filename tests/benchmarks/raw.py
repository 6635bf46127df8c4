"""Plain psycopg on the same tables: what the server does when nothing stands in between."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Sequence
from typing import Any

import psycopg

Raw = psycopg.Connection[Any]

JOB, OUTBOX = "django_jobs_job", "django_jobs_outbox"
_JOB_COLUMNS = {
    "id": "uuid",
    "run_id": "uuid",
    "name": "text",
    "queue": "text",
    "priority": "smallint",
    "tenant": "text",
    "idempotency_key": "text",
    "lane": "text",
    "payload": "jsonb",
    "state": "text",
    "max_attempts": "int",
    "timeout": "float8",
    "traceparent": "text",
    "enqueued_by": "text",
    "release": "text",
}
_OUTBOX_COLUMNS = {
    **{k: v for k, v in _JOB_COLUMNS.items() if k not in ("run_id", "state")},
    "payload": "text",
    "on_conflict": "text",
    "batch": "uuid",
}
COLUMNS = {JOB: _JOB_COLUMNS, OUTBOX: _OUTBOX_COLUMNS}
BATCH = 100

CLAIM = f"""
UPDATE {JOB}
SET state = 'running', attempt = attempt + 1, lease = %s, worker = 'raw',
    lease_expires_at = statement_timestamp() + interval '30 s', started_at = statement_timestamp()
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {JOB}
    WHERE state = 'ready' AND NOT blocked AND queue = 'default'
    ORDER BY priority, run_at, id LIMIT %s FOR UPDATE SKIP LOCKED
))
RETURNING id, name, payload::text
"""
ACKNOWLEDGE = f"""
UPDATE {JOB}
SET state = 'done', lease_expires_at = NULL, finished_at = statement_timestamp()
WHERE id = ANY (%s) AND lease = %s AND state = 'running'
"""


def connect(url: str) -> Raw:
    """A session with prepared statements and plans that do not depend on the parameters."""
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("SET plan_cache_mode = force_generic_plan")
    return connection


def entries(table: str, count: int) -> list[dict[str, Any]]:
    """Rows as an enqueue writes them, made before the clock starts."""
    from django_jobs.ids import new_id
    from tests.benchmarks.jobs import noop

    made = []
    batch = uuid.uuid4()
    for number in range(count):
        id_ = new_id()
        row = {
            "id": id_, "run_id": id_, "name": noop.name, "queue": "default", "priority": 0,
            "tenant": "", "idempotency_key": str(id_), "lane": None,
            "payload": f'{{"number":{number}}}', "state": "ready", "max_attempts": 3,
            "timeout": None, "traceparent": "", "enqueued_by": "", "release": "",
            "on_conflict": "dedupe", "batch": batch,
        }  # fmt: skip
        made.append({name: row[name] for name in COLUMNS[table]})
    return made


def insert_one_by_one(raw: Raw, table: str, rows: Sequence[dict[str, Any]]) -> float:
    """Seconds for one INSERT each, in autocommit unless a transaction is open."""
    columns = COLUMNS[table]
    cells = ", ".join(f"%({name})s" for name in columns)
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({cells})"
    started = time.perf_counter()
    with raw.cursor() as cursor:
        for row in rows:
            cursor.execute(statement, row)
    return time.perf_counter() - started


def insert_at_once(raw: Raw, table: str, rows: Sequence[dict[str, Any]]) -> float:
    """Seconds for one INSERT … SELECT FROM unnest(…)."""
    columns = COLUMNS[table]
    cells = ", ".join(f"%s::{'text' if t == 'jsonb' else t}[]" for t in columns.values())
    names = ", ".join(columns)
    read = names.replace("payload", "payload::jsonb") if table == JOB else names
    statement = (
        f"INSERT INTO {table} ({names}) SELECT {read} FROM unnest({cells}) AS called ({names})"
    )
    arrays = [[row[name] for row in rows] for name in columns]
    started = time.perf_counter()
    raw.execute(statement, arrays)
    return time.perf_counter() - started


def drain(raw: Raw) -> tuple[float, int]:
    """Seconds and jobs of a loop that claims and acknowledges 100 at a time until none is left."""
    done, started = 0, time.perf_counter()
    with raw.cursor() as cursor:
        while True:
            lease = uuid.uuid4()
            ids = [row[0] for row in cursor.execute(CLAIM, (lease, BATCH)).fetchall()]
            if not ids:
                return time.perf_counter() - started, done
            cursor.execute(ACKNOWLEDGE, (ids, lease))
            done += cursor.rowcount


_FILL = f"""
INSERT INTO {JOB} (id, run_id, name, queue, priority, tenant, idempotency_key, payload, state,
    run_at, max_attempts, traceparent, enqueued_by, release, created_at, finished_at)
SELECT id, id, %(name)s::text, 'default', 0, '', id::text, '{{"number":1}}', %(state)s::text,
    statement_timestamp() + %(due)s::float8 * interval '1 s', 3, '', '', '', statement_timestamp(),
    CASE WHEN %(state)s::text = 'done' THEN statement_timestamp() END
FROM (
    SELECT (lpad(to_hex(%(base)s::bigint + n / 10), 12, '0') || '7'
        || substr(md5(random()::text || n), 1, 3) || '8'
        || substr(md5(random()::text || n), 4, 15))::uuid AS id
    FROM generate_series(1, %(count)s::int) AS n
) AS made
"""


def fill(raw: Raw, count: int, *, state: str = "ready", due: float = 0.0) -> None:
    """Put jobs into the table as if they had been published; ``due`` seconds from now."""
    from tests.benchmarks.jobs import noop

    base = int(time.time() * 1000)
    for start in range(0, count, 100_000):
        some = min(100_000, count - start)
        raw.execute(
            _FILL,
            {"name": noop.name, "state": state, "due": due, "base": base + start, "count": some},
        )


def empty(raw: Raw) -> None:
    """No rows, no dead rows, no pages left to flush."""
    raw.execute(f"TRUNCATE {JOB}, {OUTBOX}, django_jobs_attempt")


def settle_down(raw: Raw, *, quick: bool = False) -> None:
    """Leave no work of the set-up for the server to do while the clock runs."""
    raw.execute(f"VACUUM (ANALYZE) {JOB}")
    raw.execute(f"VACUUM (ANALYZE) {OUTBOX}")
    if quick:
        return
    with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
        raw.execute("CHECKPOINT")
