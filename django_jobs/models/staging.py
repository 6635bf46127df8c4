"""What one transaction of a caller staged: its order group, and the wake-up after its commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connections, transaction

from django_jobs.ids import new_token
from django_jobs.models.waking import Hint, notify

_ATTRIBUTE = "_django_jobs_transaction"


@dataclass(slots=True)
class CallersTransaction:
    """One outermost transaction of a connection. ``batch`` names its order group."""

    alias: str
    block: Any
    batch: UUID = field(default_factory=new_token)
    hooks: Any = None
    over: bool = False

    def wake_after_commit(self) -> None:
        """Have the relays woken when the transaction commits, once."""
        connection = connections[self.alias]
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
        known = CallersTransaction(alias, block)
        setattr(connection, _ATTRIBUTE, known)
    return known
