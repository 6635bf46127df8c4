"""The one place that asks what the database engine can do.

Hot statements live in ``sql/<verb>.sql``, with a twin ``sql/<verb>.sqlite.sql`` where SQLite needs
other words.
A method names the verb and its parameters; what differs between the engines is said here.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from django.db import (
    DatabaseError,
    InterfaceError,
    InternalError,
    OperationalError,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CharField, Func

from django_jobs import conf

T = TypeVar("T")

READ_COMMITTED = 2
"""``psycopg.IsolationLevel.READ_COMMITTED``, without importing a driver that may be absent."""

SQL = Path(__file__).parent / "sql"

_SQLITE_CLOCK = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'{})"
_SQLITE_TIME = "%Y-%m-%d %H:%M:%S.%f"


def is_postgres(alias: str) -> bool:
    """Whether ``alias`` is PostgreSQL; the only other engine is SQLite."""
    return connections[alias].vendor == "postgresql"


@cache
def _text(verb: str, postgres: bool) -> str:
    twin = SQL / f"{verb}.sqlite.sql"
    text = (SQL / f"{verb}.sql" if postgres or not twin.exists() else twin).read_text()
    text = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    if postgres:
        return text
    text = text.replace("{now}", _SQLITE_CLOCK.format(""))
    return text.replace("{now + lease}", _SQLITE_CLOCK.format(", %(lease)s || ' seconds'"))


def run(
    alias: str, verb: str, parameters: Mapping[str, Any], **parts: str
) -> list[tuple[Any, ...]]:
    """Execute ``verb`` on ``alias`` and return its rows. ``parts`` fill ``{name}`` in the text."""
    postgres = is_postgres(alias)
    text = _text(verb, postgres)
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    if not postgres:
        parameters = {name: _plain(value) for name, value in parameters.items()}
    with connections[alias].cursor() as cursor:
        cursor.execute(text, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def _plain(value: Any) -> Any:
    """``value`` as SQLite's own clock and Django's backend write it: hex text, or UTC text.

    Milliseconds, like ``{now}``: times are compared as text, and ``.5`` sorts before ``.500``.
    """
    if isinstance(value, uuid.UUID):
        return value.hex
    if isinstance(value, datetime):
        utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return utc.strftime(_SQLITE_TIME)[:-3]
    return value


def constant(text: str) -> Func:
    """``text`` written into the statement.

    SQLite takes a partial index whose condition is a list only for a statement that repeats the
    list; with parameters in their place it reads the whole table.
    """
    assert text.isidentifier(), text
    return Func(template=f"'{text}'", output_field=CharField())


def rows(
    alias: str, types: Mapping[str, str], values: Sequence[Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """``values`` as a table for a FROM clause, and the parameters it needs.

    ``types`` maps each column to its PostgreSQL type. Parameters are one array for each column
    on PostgreSQL and one JSON document on SQLite, so that any number of rows stays far from
    either engine's limit on the number of parameters. Columns: those of ``types``, ``position``.
    """
    if not is_postgres(alias):
        return _json_rows(types, values)
    names = ", ".join(types)
    if len(values) == 1:
        cells = ", ".join(f"(%(r_{name})s)::{kind}" for name, kind in types.items())
        parameters = {f"r_{name}": values[0][name] for name in types}
        return f"(VALUES ({cells}, 1)) AS called ({names}, position)", parameters
    arrays = ", ".join(f"(%(r_{name})s)::{kind}[]" for name, kind in types.items())
    parameters = {
        f"r_{name}": _array(kind, [row[name] for row in values]) for name, kind in types.items()
    }
    return f"unnest({arrays}) WITH ORDINALITY AS called ({names}, position)", parameters


def _array(kind: str, values: list[Any]) -> list[Any] | str:
    """One array as a parameter: of ids as text, since the driver goes through them one by one."""
    if kind != "uuid" or None in values:
        return values
    return "{" + ",".join([value.hex for value in values]) + "}"


def _json_rows(
    types: Mapping[str, str], values: Sequence[Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    cells = ", ".join(
        f"json_extract(value, '$[{number}]') AS {name}" for number, name in enumerate(types)
    )
    document = json.dumps([[_plain(row[name]) for name in types] for row in values])
    return f"(SELECT {cells}, key AS position FROM json_each(%(r_rows)s)) AS called", {
        "r_rows": document
    }


def numbers(alias: str, values: Iterable[int]) -> list[int] | str:
    """A list of numbers as one parameter: an array, or on SQLite a JSON document."""
    return list(values) if is_postgres(alias) else json.dumps(list(values))


def texts(alias: str, values: Iterable[str]) -> list[str] | str:
    """The same for texts."""
    return list(values) if is_postgres(alias) else json.dumps(list(values))


def among(alias: str, column: str, parameter: str) -> str:
    """The condition that a text column holds one of the ``texts`` of ``parameter``."""
    if is_postgres(alias):
        return f"({column} = ANY((%({parameter})s)::text[]))"
    return f"({column} IN (SELECT value FROM json_each(%({parameter})s)))"


def to_uuid(value: Any) -> uuid.UUID:
    """An id as either engine returns it."""
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)


def in_transaction(alias: str) -> bool:
    """Whether ``alias`` is in a transaction that will really commit or roll back.

    The blocks that Django's test cases open around a test do not count: nothing would ever be
    committed by them, and Django's own ``durable`` and ``on_commit`` look at the same mark.
    """
    connection = connections[alias]
    blocks = connection.atomic_blocks
    for block in blocks:
        if not getattr(block, "_from_testcase", False):
            return True
    if blocks:
        return False
    return _begun(connection)


def _begun(connection: BaseDatabaseWrapper) -> bool:
    """Whether what ``connection`` executes next is part of something, be it a test's block."""
    # Not get_autocommit(), which connects: a database that nobody uses must not be opened here.
    connected = connection.connection is not None
    autocommit = connection.autocommit if connected else connection.settings_dict["AUTOCOMMIT"]
    return connection.in_atomic_block or not autocommit


@contextmanager
def own_transaction(alias: str) -> Iterator[None]:
    """A transaction at READ COMMITTED, whatever the connection's default.

    What is read after a lock was waited for must see what the holder committed; a snapshot
    taken before the lock would not (PostgreSQL manual, "Transaction Isolation").
    """
    outermost = not connections[alias].in_atomic_block
    with transaction.atomic(using=alias):
        if outermost and is_postgres(alias) and not _begins_read_committed(alias):
            with connections[alias].cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield


def _begins_read_committed(alias: str) -> bool:
    """Whether the connection names READ COMMITTED in its BEGIN, which saves a round trip."""
    options = connections[alias].settings_dict.get("OPTIONS", {})
    return bool(options.get("isolation_level") == READ_COMMITTED)


@contextmanager
def impatient_transaction(alias: str, seconds: float) -> Iterator[None]:
    """``own_transaction`` in which no lock is waited for longer than ``seconds``.

    On SQLite, where there is one lock for all, the connection's own time-out holds.
    """
    with own_transaction(alias):
        if is_postgres(alias):
            with connections[alias].cursor() as cursor:
                limit = f"{int(seconds * 1000)}ms"
                cursor.execute("SELECT set_config('lock_timeout', %s, TRUE)", (limit,))
        yield


def sqlstate(error: DatabaseError) -> str | None:
    """PostgreSQL's code for an error that Django has wrapped, if it has one."""
    code: str | None = getattr(error.__cause__, "sqlstate", None)
    return code


def is_contention(error: OperationalError) -> bool:
    """Whether a statement failed only because others were at the same rows."""
    locked = sqlstate(error) in (*_RETRYABLE, _LOCK_NOT_AVAILABLE)
    return locked or "is locked" in str(error)


def is_outage(error: Exception) -> bool:
    """Whether the database was not there, or refuses everyone: no row is to blame.

    Drivers say "operational" of what is the row's own fault too: a limit that it exceeds, a
    statement that takes too long with it.
    """
    if isinstance(error, OperationalError):
        return (sqlstate(error) or "")[:2] not in _LIMITS and not was_canceled(error)
    # After a failover the old primary answers every write like this.
    read_only = isinstance(error, InternalError) and sqlstate(error) == _READ_ONLY
    return read_only or isinstance(error, InterfaceError)


def was_canceled(error: DatabaseError) -> bool:
    """Whether a statement time-out, or somebody, ended the statement."""
    return sqlstate(error) == _CANCELED


_LIMITS = ("22", "54")
_CANCELED = "57014"
_READ_ONLY = "25006"
_LOCK_NOT_AVAILABLE = "55P03"
_RETRYABLE = ("40001", "40P01")


def retrying(work: Callable[[], T], alias: str | None = None, tries: int = 3) -> T:
    """``work()``, a whole transaction of ours, tried again after a deadlock or serialization error.

    ``alias``: where it works; ``None`` is the jobs' database. Inside a caller's transaction the
    error is the caller's, who has lost all since its begin: nothing is tried again.
    """
    if _begun(connections[alias or conf.current().database]):
        return work()
    for left in range(tries - 1, -1, -1):
        try:
            return work()
        except OperationalError as error:
            if left == 0 or sqlstate(error) not in _RETRYABLE:
                raise
            time.sleep(random.uniform(0.001, 0.02))
    raise AssertionError("unreachable")


BATONS = {"relay": 1}
ADVISORY_CLASS = 0x646A6F62
"""First integer of every advisory lock of ours, so that we never meet the application's own."""


def take_baton(alias: str, name: str, *, durable: bool = True) -> bool:
    """Whether this transaction is now the only one that holds the baton ``name``.

    Unless ``durable``, its commit does not wait for the disk: a crash of the server may undo it.
    Nothing in it is compiled: the planner takes a claim for costlier than it is.
    On SQLite the write transaction itself is the baton.
    """
    if not is_postgres(alias):
        return True
    asked = "SELECT pg_try_advisory_xact_lock(%s, %s), set_config('jit', 'off', true)"
    if not durable:
        asked += ", set_config('synchronous_commit', 'off', true)"
    with connections[alias].cursor() as cursor:
        cursor.execute(asked, (ADVISORY_CLASS, BATONS[name]))
        return bool(cursor.fetchone()[0])
