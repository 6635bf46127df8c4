"""What every test has: the servers, three databases, and the engines to run on.

Usage::

    def test_a_claim_takes_one_job(jobs_alias):          # runs on PostgreSQL and on SQLite
        job = Job.objects.using(jobs_alias)...

    def test_a_killed_worker(jobs_alias, worker):        # a real `manage.py runworker`
        running = worker("--queues", "default", LEASE=2)
        running.kill()

A test that takes ``jobs_alias`` or ``worker`` commits for real, on every alias, and finds the
tables empty. Any other says ``@pytest.mark.django_db(transaction=True, databases="__all__")``.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest

from tests import flush, servers
from tests.workers import attach_output, worker

__all__ = ["worker"]

POSTGRES = pytest.StashKey[servers.PostgresServer]()
REDIS = pytest.StashKey[servers.RedisServer]()
HEADER = pytest.StashKey[list[str]]()
NOT_RUNNING = "127.0.0.1:1"

ENGINES = {"postgresql": "default", "sqlite": "sqlite"}


def pytest_configure(config: pytest.Config) -> None:
    """Start the servers before Django is loaded: its settings name them."""
    folder = tempfile.mkdtemp(prefix="django-jobs-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # Unwind as on Ctrl-C, so that fixtures stop what they started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    os.environ["TEST_SQLITE_PATH"] = str(Path(folder) / "jobs.sqlite3")
    if config.option.collectonly or config.option.help or config.option.version:
        os.environ["TEST_POSTGRES_URL"] = f"postgresql://{NOT_RUNNING}/"
        os.environ["TEST_REDIS_URL"] = f"redis://{NOT_RUNNING}/0"
    else:
        _start_servers(config)
    django.setup()
    flush.install()


def _start_servers(config: pytest.Config) -> None:
    try:
        postgres = config.stash[POSTGRES] = servers.postgres()
        config.add_cleanup(postgres.close)
        redis = config.stash[REDIS] = servers.redis_or_valkey()
        config.add_cleanup(redis.close)
    except servers.ServerMissing as error:
        raise pytest.UsageError(str(error)) from error
    os.environ["TEST_POSTGRES_URL"] = postgres.url()
    os.environ["TEST_REDIS_URL"] = redis.url()
    config.stash[HEADER] = [postgres.describe(), redis.describe()]


def pytest_report_header(config: pytest.Config) -> list[str]:
    used = config.stash.get(HEADER, ["none, nothing is run"])
    return [f"servers: {', '.join(used)}"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that need it the database mark, before pytest-django sorts by it."""
    for item in items:
        needs = {"jobs_alias", "worker"} & set(getattr(item, "fixturenames", ()))
        if needs and not item.get_closest_marker("django_db"):
            item.add_marker(pytest.mark.django_db(transaction=True, databases="__all__"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    attach_output(item, report)
    return report


@pytest.fixture(params=list(ENGINES.values()), ids=list(ENGINES))
def jobs_alias(request: pytest.FixtureRequest, settings: Any, transactional_db: None) -> str:
    """The alias that holds the jobs, once per engine; ``DJANGO_JOBS`` points at it."""
    alias: str = request.param
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "DATABASE": alias}
    return alias


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> servers.PostgresServer:
    """The server that all tests share. Do not stop it: take ``private_postgres`` for that."""
    return pytestconfig.stash[POSTGRES]


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> servers.RedisServer:
    """The server that all tests share. Do not stop it: take ``private_redis`` for that."""
    return pytestconfig.stash[REDIS]


@pytest.fixture
def private_postgres() -> Iterator[servers.PostgresServer]:
    """A server that the test may stop, restart and crash."""
    server = servers.start_private_postgres()
    yield server
    server.close()


@pytest.fixture
def private_redis() -> Iterator[servers.RedisServer]:
    """A server that the test may stop, restart and crash."""
    server = servers.start_private_redis()
    yield server
    server.close()
