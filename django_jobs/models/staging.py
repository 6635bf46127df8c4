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
    hooked: set[tuple[str, ...]] = field(default_factory=set)
    over: bool = False

    def wake_after_commit(self) -> None:
        """Have the relays woken when the transaction commits, once."""
        # A hook that is set inside a savepoint is dropped with it; hence one for each.
        savepoints = tuple(connections[self.alias].savepoint_ids)
        if savepoints not in self.hooked:
            self.hooked.add(savepoints)
            transaction.on_commit(self._committed, using=self.alias, robust=True)

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
