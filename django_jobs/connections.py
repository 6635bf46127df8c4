"""The worker's database connections: its own, and those that bodies use."""

from __future__ import annotations

import copy
import logging
import select
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.models import picking

logger = logging.getLogger("django_jobs.connections")

SQLITE_OPTIONS: dict[str, Any] = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL",
}
"""What a worker sets on SQLite, and what the web processes beside it should set too.

A transaction that reads first and writes later fails at once when another wrote in between; no
timeout helps. IMMEDIATE makes it wait for its turn instead.
"""


def prepare_sqlite() -> None:
    """Give this process's SQLite connections the options that a worker needs."""
    for alias in connections:
        if connections[alias].vendor == "sqlite":
            options = connections.settings[alias].setdefault("OPTIONS", {})
            for name, value in SQLITE_OPTIONS.items():
                options.setdefault(name, value)


def pool_size(alias: str) -> int | None:
    """How many connections Django's pool gives out at most; ``None`` without a pool."""
    pool = connections.settings[alias].get("OPTIONS", {}).get("pool")
    if not pool:
        return None
    # psycopg's own defaults: four connections, and as many at most.
    options = {} if pool is True else pool
    size = options.get("max_size")
    return int(options.get("min_size", 4) if size is None else size)


def own_connection(alias: str) -> None:
    """Give this thread a connection of its own for ``alias``, outside Django's pool.

    Bodies must not be able to starve the thread that renews their leases.
    """
    if not picking.is_postgres(alias):
        return
    settings = copy.deepcopy(connections.settings[alias])
    settings["CONN_MAX_AGE"] = None
    settings["CONN_HEALTH_CHECKS"] = False
    options = settings.setdefault("OPTIONS", {})
    options.pop("pool", None)
    options["isolation_level"] = picking.READ_COMMITTED
    keeps_sessions = not settings.get("DISABLE_SERVER_SIDE_CURSORS")
    if keeps_sessions:  # Django's word for "no pooler hands the session to others between uses".
        options.update(server_side_binding=True, prepare_threshold=PREPARED_FROM)
    wrapper: Any = type(connections[alias])(settings, alias)
    if keeps_sessions:
        wrapper.init_connection_state = _with_generic_plans(wrapper)
    connections[alias] = wrapper


PREPARED_FROM = 2
"""Executions after which a loop's statement is prepared: they are few, and repeat for ever."""


def _with_generic_plans(wrapper: Any) -> Callable[[], None]:
    """Plan each statement once, for arrays and limits of any length.

    A plan made for 500 given ids joins them with the whole table as soon as its statistics are
    old, and planning anew costs more than most of our statements take. Nor are plans compiled:
    where the planner expects many rows and there is one, that takes a hundred times as long.
    """
    initialize: Callable[[], None] = wrapper.init_connection_state

    def initialize_and_set() -> None:
        initialize()
        wrapper.connection.execute("SET plan_cache_mode = force_generic_plan")
        wrapper.connection.execute("SET jit = off")

    return initialize_and_set


def close_all() -> None:
    """Close this thread's connections, broken ones too."""
    for connection in connections.all(initialized_only=True):
        _close(connection)


def ready_for_body() -> list[BaseDatabaseWrapper]:
    """Make this thread's connections ready for a body; the PostgreSQL ones.

    Those whose server has hung up are dropped, without a round trip, and changes that the body
    makes to a session are watched for.
    """
    # One look at them for each job: Django finds them anew every time, and that is not cheap.
    postgres = [c for c in connections.all() if c.vendor == "postgresql"]
    for connection in postgres:
        if connection.connection is not None and _has_hung_up(connection):
            _close(connection)
        _watch(connection)
    return postgres


def _has_hung_up(connection: BaseDatabaseWrapper) -> bool:
    """An idle session has nothing to read; what is there is a farewell, or the end of the file."""
    raw = connection.connection
    if raw.closed:
        return True
    poller = select.poll()
    poller.register(raw.fileno(), select.POLLIN)
    return bool(poller.poll(0)) and not connection.is_usable()


def tidy_after_body(name: str) -> None:
    """Leave this thread's connections as a body should find them. ``name`` is the job's.

    An open transaction is rolled back and its connection closed; so is one that is broken or
    whose session the body changed. All others stay open, whatever ``CONN_MAX_AGE`` says: a
    connection for each job would cost more than most jobs do.
    """
    for connection in connections.all():  # None is made here: ``ready_for_body`` has all of them.
        if connection.connection is None:
            continue
        fault = _fault(connection)
        if fault is None:
            if pool_size(connection.alias) is not None:
                connection.close()  # Back into the pool: async bodies take theirs from it, too.
            continue
        if fault:
            logger.warning("job %s left %s on database %r", name, fault, connection.alias)
        _close(connection)


def _fault(connection: BaseDatabaseWrapper) -> str | None:
    """What is wrong with a connection: a text to warn with, ``""`` for nothing to say, or none."""
    if connection.in_atomic_block or not connection.get_autocommit():
        return "a transaction open"
    if connection.vendor == "postgresql" and connection.connection.closed:
        return ""
    if _in_raw_transaction(connection):
        return "a transaction open that it began by hand"
    if connection.errors_occurred and not connection.is_usable():
        return ""
    connection.errors_occurred = False
    watch: SessionWatch | None = getattr(connection, "_django_jobs_watch", None)
    if watch is not None and watch.changed:
        return ""
    return None


def _in_raw_transaction(connection: BaseDatabaseWrapper) -> bool:
    raw = connection.connection
    if connection.vendor == "postgresql":
        return bool(raw.info.transaction_status != 0)
    return bool(raw.in_transaction)


def _close(connection: BaseDatabaseWrapper) -> None:
    raw = connection.connection
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.run_on_commit = []
    connection.closed_in_transaction = False
    try:
        # The session itself, so that a pool does not hand its state to the next borrower.
        if raw is not None and connection.vendor == "postgresql":
            raw.close()
        connection.close()
    except Exception as error:
        logger.debug("closing a connection to %r: %s", connection.alias, error)
    finally:
        connection.connection = None


class SessionWatch:
    """Notes whether a body changed the session of its connection: SET, LISTEN and the like."""

    CHANGING = ("SET", "RESET", "LISTEN", "PREPARE", "DISCARD", "CREATE TEMP", "SELECT SET_CONFIG")

    def __init__(self) -> None:
        self.changed = False

    def __call__(  # noqa: D102 - Django's protocol of an execute wrapper
        self, execute: Any, sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        if not self.changed and isinstance(sql, str):
            head = sql[:40].lstrip().upper()
            local = head.startswith(("SET LOCAL", "SET TRANSACTION", "SET CONSTRAINTS"))
            self.changed = head.startswith(self.CHANGING) and not local
        return execute(sql, params, many, context)


def _watch(connection: BaseDatabaseWrapper) -> None:
    watch = getattr(connection, "_django_jobs_watch", None)
    if watch is None:
        watch = SessionWatch()
        connection._django_jobs_watch = watch  # type: ignore[attr-defined]
        connection.execute_wrappers.append(watch)
    watch.changed = False
