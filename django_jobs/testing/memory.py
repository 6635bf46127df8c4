"""A queue in memory, for tests without a database: the same code on SQLite ``:memory:``."""

from __future__ import annotations

import dataclasses
import warnings
from types import TracebackType
from typing import Any, Self

from django.apps import apps
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import conf
from django_jobs.testing.draining import Ran, drain

ALIAS = "django_jobs_memory"


class MemoryQueue:
    """Jobs live in this thread's memory until ``close()``, which must be called.

    Enqueues do not take part in transactions of the project's own database: for that, use
    ``drain()`` inside a ``TestCase``.
    """

    def __init__(self) -> None:
        if ALIAS in connections.settings:
            raise RuntimeError("There is a memory queue already; close() it first.")
        connections.settings[ALIAS] = _configuration()
        self._open = True
        # Not ensure_connection: test cases refuse that for aliases they do not know.
        connections[ALIAS].connect()
        self._create_tables()
        settings = conf.current()
        conf.use(dataclasses.replace(settings, database=ALIAS, outbox_databases=(ALIAS,)))

    def _create_tables(self) -> None:
        with connections[ALIAS].schema_editor() as editor:
            for model in apps.get_app_config("django_jobs").get_models():
                editor.create_model(model)

    def drain(self, **options: Any) -> list[Ran]:
        """Run what is due, in this thread; see ``django_jobs.testing.drain``."""
        return drain(**options)

    def close(self) -> None:
        """Drop everything; the project's own database holds the jobs again."""
        if not self._open:
            return
        self._open = False
        # Django keeps in-memory databases open on purpose; its base class does close them.
        BaseDatabaseWrapper.close(connections[ALIAS])
        del connections[ALIAS]
        del connections.settings[ALIAS]
        conf.use(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            warnings.warn("a memory queue was not closed", ResourceWarning, stacklevel=2)


def memory_queue() -> MemoryQueue:
    """Hold jobs in memory until ``close()``; also a context manager."""
    return MemoryQueue()


def _configuration() -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        "ATOMIC_REQUESTS": False,
        "AUTOCOMMIT": True,
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": False,
        "OPTIONS": {},
        "TIME_ZONE": None,
        "USER": "",
        "PASSWORD": "",
        "HOST": "",
        "PORT": "",
        "TEST": {"CHARSET": None, "COLLATION": None, "MIGRATE": True, "MIRROR": None, "NAME": None},
    }
