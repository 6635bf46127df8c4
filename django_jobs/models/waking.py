"""Wake-ups: hints that something happened, so that idle workers need not poll for it.

A hint may be lost, and every loop looks for itself now and then; so a hint never blocks, never
raises, and is never part of a caller's transaction: NOTIFY takes a database-wide lock from the
statement to the commit of its transaction.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import StrEnum

from django.db import DatabaseError, InterfaceError, connections, transaction

from django_jobs.models import picking

logger = logging.getLogger("django_jobs.waking")

CHANNEL = "django_jobs"

WINDOW = 0.01
"""Seconds within which a process drops a repeated hint of one kind.

Who hears a hint therefore looks once more when the window is over.
"""


class Hint(StrEnum):
    """What happened. The value is the payload of the NOTIFY: never job data."""

    STAGED = "staged"
    READY = "ready"
    STOP = "stop"
    EMITTED = "emitted"


_listeners: list[Callable[[Hint], None]] = []
_sent: dict[tuple[str, Hint], float] = {}
_lock = threading.Lock()


def subscribe(listener: Callable[[Hint], None]) -> Callable[[], None]:
    """Call ``listener`` with each hint given in this process; returns how to unsubscribe."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def notify(alias: str, hint: Hint) -> None:
    """Tell the workers of the database ``alias``, when the open transaction commits; never raises.

    Before that they would look and see nothing. With autocommit off Django has no hooks for the
    commit; polling finds it then.
    """
    connection = connections[alias]
    if connection.in_atomic_block:
        transaction.on_commit(lambda: _tell(alias, hint), using=alias, robust=True)
    elif not picking.in_transaction(alias):
        _tell(alias, hint)


def _tell(alias: str, hint: Hint) -> None:
    for listener in tuple(_listeners):
        listener(hint)
    connection = connections[alias]
    # A test that runs the hooks of its own open block has committed nothing.
    if not picking.is_postgres(alias) or connection.in_atomic_block:
        return
    if not _may_send(alias, hint):  # Asked last: it counts what is sent, not what is dropped.
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", (CHANNEL, hint.value))
    except (DatabaseError, InterfaceError) as error:
        logger.debug("wake-up %s not sent: %s", hint.value, error)


def _may_send(alias: str, hint: Hint) -> bool:
    now = time.monotonic()
    with _lock:
        if now - _sent.get((alias, hint), -WINDOW) < WINDOW:
            return False
        _sent[alias, hint] = now
    return True
