"""LISTEN on a connection of its own: wake-ups of other processes reach this one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connections
from psycopg import sql

from django_jobs import conf
from django_jobs.models import picking
from django_jobs.models.waking import CHANNEL, Hint

logger = logging.getLogger("django_jobs.listener")

SELF_TEST = "self-test"
PATIENCE = 1.0
"""Seconds to wait for the echo of the self-test."""

KEEPALIVE = 30.0


class Listener(threading.Thread):
    """Hands every hint to ``on_hint``. ``working`` says whether hints arrive at all.

    Behind a pooler in transaction mode LISTEN is accepted and nothing is ever delivered, so a
    message to itself is sent first; without its echo the loops go on polling.
    """

    def __init__(self, on_hint: Callable[[Hint], None]) -> None:
        super().__init__(name="listener", daemon=True)
        settings = conf.current()
        self.alias = settings.listen_database or settings.database
        self.working = False
        self._on_hint = on_hint
        self._stopping = threading.Event()
        self._told = False

    @property
    def possible(self) -> bool:
        """Whether the engine knows NOTIFY."""
        return picking.is_postgres(self.alias)

    def stop(self) -> None:
        """End within a second."""
        self._stopping.set()

    def run(self) -> None:
        """The thread's body: connect, listen, connect again."""
        delay = 0.2
        while not self._stopping.is_set():
            try:
                with self._connect("listener") as connection:
                    delay = 0.2
                    self._listen(connection)
            except Exception as error:
                logger.debug("listener: %s", error)
            if self.working:
                self.working = False
                self._look()  # From now on by polling.
            self._stopping.wait(delay)
            delay = min(delay * 2, 10.0)

    def _connect(self, purpose: str) -> psycopg.Connection[Any]:
        wrapper = connections[self.alias]
        parameters = wrapper.get_connection_params()
        for name in ("cursor_factory", "context", "prepare_threshold"):
            parameters.pop(name, None)
        parameters.setdefault("application_name", f"django_jobs {purpose}")
        return psycopg.connect(**parameters, autocommit=True)

    def _listen_on(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        self._listen_on(connection)
        # From another session: behind a pooler the answer to a statement of our own carries the
        # echo, whatever becomes of messages that arrive between statements.
        with self._connect(SELF_TEST) as other:
            other.execute("SELECT pg_notify(%s, %s)", (CHANNEL, SELF_TEST))
        if not self._echo(connection):
            if not self._told:
                logger.warning(
                    "LISTEN delivers nothing on database %r (a pooler in transaction mode?): "
                    "polling every %s s. Point DJANGO_JOBS['LISTEN_DATABASE'] past it.",
                    self.alias,
                    conf.current().poll_interval,
                )
                self._told = True
            self._stopping.wait(60)
            return
        self.working = True
        self._look()  # Hints given while nobody listened are lost.
        heard = time.monotonic()
        while not self._stopping.is_set():
            for message in connection.notifies(timeout=1.0):
                self._heard(message.payload)
                if self._stopping.is_set():
                    return
            if time.monotonic() - heard > KEEPALIVE:
                heard = time.monotonic()
                connection.execute("SELECT 1")

    def _echo(self, connection: psycopg.Connection[Any]) -> bool:
        deadline = time.monotonic() + PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            for message in connection.notifies(timeout=left, stop_after=1):
                if message.payload == SELF_TEST:
                    return True
                self._heard(message.payload)
        return False

    def _look(self) -> None:
        for hint in Hint:
            self._on_hint(hint)

    def _heard(self, payload: str) -> None:
        if payload in Hint._value2member_map_:
            self._on_hint(Hint(payload))
