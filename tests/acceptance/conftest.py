"""A PostgreSQL of the tests' own, which they may stop and restart under a worker."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections

from tests import servers

PRIVATE = "private"
"""The alias of the private server in the test's process; to the worker it is ``default``."""


@pytest.fixture(scope="package")
def restartable(django_db_setup: None, django_db_blocker: Any) -> Iterator[servers.PostgresServer]:
    """One private server for all tests here: whoever stops it starts it again.

    Its alias exists before a test begins, so that it is among those that a test may use and that
    are emptied after it.
    """
    server = servers.start_private_postgres()
    name = connections.settings["default"]["NAME"]
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
    parts = urlsplit(server.url())
    connections.settings[PRIVATE] = {
        **copy.deepcopy(connections.settings["default"]),
        "NAME": name,
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": str(parts.port),
    }
    with django_db_blocker.unblock():
        call_command("migrate", database=PRIVATE, run_syncdb=True, verbosity=0)
        connections[PRIVATE].close()
    yield server
    with django_db_blocker.unblock():
        connections[PRIVATE].close()
    del connections.settings[PRIVATE]
    del connections[PRIVATE]
    server.close()


@pytest.fixture
def private(
    restartable: servers.PostgresServer, settings: Any, monkeypatch: Any, transactional_db: None
) -> servers.PostgresServer:
    """Jobs in a private server, for the test (alias ``private``) and for its workers."""
    monkeypatch.setenv("TEST_POSTGRES_URL", restartable.url())
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "DATABASE": PRIVATE}
    return restartable


@pytest.fixture
def private_worker(private: servers.PostgresServer, worker: Any) -> Any:
    """``worker``, for the private server."""

    def start(*arguments: str, **jobs: Any) -> Any:
        return worker(*arguments, **{"DATABASE": "default", **jobs})

    return start
