"""The server, the database and the processes that the sections measure."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from tests import servers

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 600.0


@contextlib.contextmanager
def server() -> Iterator[servers.PostgresServer]:
    """The server at ``DATABASE_URL``, or one of our own with PostgreSQL's default durability."""
    given = bool(os.environ.get("DATABASE_URL"))
    found = servers.postgres() if given else servers.start_private_postgres(durable=True)
    try:
        if found.owned:
            _count_statements(found)
        yield found
    finally:
        found.close()


def _count_statements(found: servers.PostgresServer) -> None:
    """Load pg_stat_statements where the server has it; it needs a restart."""
    with psycopg.connect(found.url(), autocommit=True) as connection:
        known = "SELECT 1 FROM pg_available_extensions WHERE name = 'pg_stat_statements'"
        if connection.execute(known).fetchone() is None:
            return
        connection.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
    found.restart()


@contextlib.contextmanager
def database(found: servers.PostgresServer) -> Iterator[str]:
    """The URL of a database of our own, with the project's migrations applied."""
    name = f"django_jobs_bench_{os.getpid()}"
    with psycopg.connect(found.url(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        os.environ["BENCH_DATABASE_URL"] = found.url(name)
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.benchmarks.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        yield found.url(name)
    finally:
        from django.db import connections

        connections.close_all()
        with psycopg.connect(found.url(), autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


class Worker:
    """A real ``manage.py runworker``: default hygiene, signals, and INFO lines into a file."""

    def __init__(self, *arguments: str) -> None:
        self.log = tempfile.NamedTemporaryFile(prefix="bench-worker-", suffix=".log")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "runworker", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(30)
        finally:
            if self._process.poll() is None:
                self._process.kill()
            self.log.close()

    def wait(self) -> None:
        """Until a ``--drain`` has ended, in order."""
        if self._process.wait(PATIENCE):
            raise RuntimeError(
                f"the worker ended with {self._process.returncode}:\n{self.output()}"
            )

    def until_listening(self, raw: psycopg.Connection[Any]) -> None:
        """Until the worker has said that it runs, and listens."""
        listening = (
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND query ~ '^(LISTEN|SELECT pg_notify)' AND pid <> pg_backend_pid()"
        )
        deadline = time.monotonic() + 30
        while raw.execute(listening).fetchone() is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the worker does not listen:\n{self.output()}")
            time.sleep(0.05)
        time.sleep(1.0)

    def memory(self) -> tuple[float, float]:
        """Resident megabytes of the supervisor and of its one worker process."""
        supervisor = psutil.Process(self._process.pid)
        children = sum(c.memory_info().rss for c in supervisor.children(recursive=True))
        return supervisor.memory_info().rss / 1e6, children / 1e6

    def cpu(self) -> float:
        """Seconds of processor time that the worker process and its supervisor have used."""
        supervisor = psutil.Process(self._process.pid)
        times = [p.cpu_times() for p in (supervisor, *supervisor.children(recursive=True))]
        return sum(t.user + t.system for t in times)

    def output(self) -> str:
        """The end of what it has printed."""
        return Path(self.log.name).read_text(errors="replace")[-3000:]
