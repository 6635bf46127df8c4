"""What one transaction of a caller staged: its order group, and the wake-up after its commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.ids import new_token
from django_jobs.models.outbox import Entry
from django_jobs.models.waking import Hint, notify

_ATTRIBUTE = "_django_jobs_transaction"
_encode = msgspec.json.Encoder().encode

STAGE = "SELECT django_jobs_stage(%s, FALSE)"
STAGE_UNLESS_LIVE = "SELECT django_jobs_stage(%s, TRUE)"
"""A function of migration 0007. Planning an INSERT anew each time would cost more than it does."""


@dataclass(slots=True)
class CallersTransaction:
    """One outermost transaction of a connection. ``batch`` names its order group."""

    connection: BaseDatabaseWrapper
    block: Any
    batch: UUID = field(default_factory=new_token)
    hooks: Any = None
    over: bool = False
    _cursor: Any = None

    @property
    def alias(self) -> str:
        """The alias of the connection."""
        return self.connection.alias

    def stage_one(self, entry: Entry, *, look: bool) -> UUID | None:
        """Insert one entry, on PostgreSQL; with ``look`` unless a live job holds its key.

        Returns the id of that job, ``None`` when the entry went in.
        """
        cursor = self._kept_cursor()
        if entry["run_at"] is not None:  # Of an offset from UTC the encoder drops the seconds.
            entry = {**entry, "run_at": entry["run_at"].isoformat()}
        cursor.execute(STAGE_UNLESS_LIVE if look else STAGE, (_encode(entry).decode(),))
        holder: UUID | None = cursor.cursor.fetchone()[0]
        return holder

    def _kept_cursor(self) -> Any:
        """One cursor for the whole transaction: to make one costs half as much as to use it."""
        connection, kept = self.connection, self._cursor
        if connection.queries_logged:  # Such a cursor is of another kind, and comes and goes.
            return connection.cursor()
        # A block that is used again (as a decorator) may have seen its connection replaced.
        if kept is None or kept.cursor.connection is not connection.connection:
            kept = self._cursor = connection.cursor()
        return kept

    def wake_after_commit(self) -> None:
        """Have the relays woken when the transaction commits, once."""
        connection = self.connection
        if not connection.in_atomic_block:
            return  # Autocommit is off and Django has no hooks then; relays find it by polling.
        # A rollback, of a savepoint too, drops hooks and leaves a new list of them.
        if self.hooks is not connection.run_on_commit:
            transaction.on_commit(self._committed, using=self.alias, robust=True)
            self.hooks = connection.run_on_commit

    def _committed(self) -> None:
        if not self.over:
            self.over = True
            notify(self.alias, Hint.STAGED)


def callers_transaction(alias: str) -> CallersTransaction:
    """The transaction that is open on ``alias``, as this connection last knew it.

    Known by the outermost ``atomic`` block. A block object that is used again (as a decorator)
    after a rollback keeps its batch, which is right: what rolled back left no entries.
    """
    connection = connections[alias]
    block = connection.atomic_blocks[0] if connection.atomic_blocks else None
    known: CallersTransaction | None = getattr(connection, _ATTRIBUTE, None)
    if known is None or known.over or known.block is not block or block is None:
        known = CallersTransaction(connection, block)
        setattr(connection, _ATTRIBUTE, known)
    return known
