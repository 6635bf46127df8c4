"""Identity. Ids say which row; they never say which came first (the database's sequences do)."""

from __future__ import annotations

import threading
import uuid

import uuid6

_lock = threading.Lock()


def new_id() -> uuid.UUID:
    """A new UUID version 7. ``uuid6`` keeps an unguarded global, hence the lock."""
    with _lock:
        minted = uuid6.uuid7()
    return uuid.UUID(int=minted.int)


def new_token() -> uuid.UUID:
    """A random token: a lease, an outbox claim or an order group."""
    return uuid.uuid4()
