"""Connections break, bodies misuse them, servers restart: the next job does not notice."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connections

from django_jobs import enqueue, enqueue_many, get
from django_jobs.loops import listener as listening
from django_jobs.models import Job
from django_jobs.models.waking import Hint
from tests import servers
from tests.app.jobs import (
    coroutine,
    fails,
    later,
    misbehaves,
    noop,
    record,
    reports_progress,
    terminal,
)
from tests.app.models import Account
from tests.waiting import until

WARNED = {
    "autocommit off": "left a transaction open on database 'default'",
    "begin": "left a transaction open that it began by hand on database 'default'",
}


def test_whatever_a_body_does_to_its_connection_the_next_job_finds_a_good_one(
    worker: Any,
) -> None:
    pairs = []
    for how in ("autocommit off", "begin", "swallow", "closed", "set", "cursor"):
        pairs.append((how, enqueue(misbehaves, how), enqueue(record, f"after {how}")))
    running = worker("--threads", "1")
    until(lambda: all(get(after.id).state in ("done", "dead") for _, _, after in pairs))
    assert running.stop() == 0
    for how, guilty, after in pairs:
        assert (how, get(guilty.id).state) == (how, "done")
        assert (how, get(after.id).state, get(after.id).attempt) == (how, "done", 1)
    assert not Account.objects.filter(name="leak").exists()
    warnings = [line for line in running.output.splitlines() if "WARNING" in line]
    assert len(warnings) == 2
    for line, text in zip(warnings, WARNED.values(), strict=True):
        assert f"job tests.app.jobs.misbehaves {text}" in line


def backends(server: servers.PostgresServer, where: str = "true") -> int:
    """Terminate the sessions of our database that match; how many."""
    database = connections.settings["private"]["NAME"]
    with psycopg.connect(server.url(), autocommit=True) as admin:
        ended = admin.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            f"WHERE datname = %s AND pid <> pg_backend_pid() AND {where}",
            [database],
        ).fetchone()
    assert ended is not None
    return int(ended[0])


def test_an_idle_worker_all_of_whose_sessions_were_cut_runs_the_next_job(
    private: Any, private_worker: Any
) -> None:
    running = private_worker()
    first = enqueue(record, "before")
    until(lambda: get(first.id).state == "done")
    connections["private"].close()
    assert backends(private) >= 3
    second = enqueue(record, "after")
    until(lambda: get(second.id).state == "done", 10)
    assert get(second.id).attempt == 1
    assert running.stop() == 0


def listeners(server: servers.PostgresServer) -> int:
    with psycopg.connect(server.url(), autocommit=True) as admin:
        row = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'django_jobs listener'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_a_listener_whose_session_was_cut_listens_again(private: Any, private_worker: Any) -> None:
    running = private_worker(IDLE_POLL=30, POLL_INTERVAL=30)  # Polling helps nobody here.
    until(lambda: listeners(private) == 1)
    for number in range(3):
        assert backends(private, "application_name = 'django_jobs listener'") == 1
        until(lambda: listeners(private) == 1, 10)
        time.sleep(0.5)
        asked = time.monotonic()
        result = enqueue(record, f"cut {number}")
        until(lambda: get(result.id).state == "done", 10)  # noqa: B023
        assert time.monotonic() - asked < 5
    assert listeners(private) == 1
    assert running.stop() == 0


@pytest.mark.parametrize("mode", ["immediate", pytest.param("fast", marks=pytest.mark.soak)])
def test_postgresql_restarted_under_load_costs_no_job(
    private: Any, private_worker: Any, mode: str
) -> None:
    enqueue_many(record.call(str(n)) for n in range(3000))
    running = private_worker()
    until(lambda: Job.objects.filter(state="done").count() > 100)
    connections["private"].close()
    private.stop(mode)
    time.sleep(3)
    private.start()
    until(lambda: Job.objects.filter(state="done").count() == 3000, 90)
    assert set(Job.objects.values_list("crashes", flat=True)) == {0}
    assert running.stop() == 0
    lines = [line for line in running.output.splitlines() if " the database is " in line]
    # One line at the start of the outage and one at its end, for each of four loops.
    assert 2 <= len(lines) <= 16
    assert "Traceback" not in running.output.replace("retried", "")


@pytest.mark.soak
def test_sigterm_works_while_the_database_is_away(private: Any, private_worker: Any) -> None:
    running = private_worker(SHUTDOWN_GRACE=3)
    first = enqueue(record, "before")
    until(lambda: get(first.id).state == "done")
    connections["private"].close()
    private.stop()
    try:
        running.wait_for("the database is away")
        told = time.monotonic()
        assert running.stop() == 0  # Nothing was running, nothing is unstored.
        assert time.monotonic() - told < 3 + 5
    finally:
        private.start()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"pool": {"min_size": 1, "max_size": 4}}, id="pool"),
        pytest.param({"server_side_binding": True}, id="bound on the server"),
        pytest.param({"prepare_threshold": 0}, id="always prepared", marks=pytest.mark.soak),
    ],
)
def test_every_mode_of_psycopg_runs_every_kind_of_job(
    worker: Any, monkeypatch: Any, options: dict[str, Any]
) -> None:
    every_kind_runs(worker, monkeypatch, OPTIONS=options)


def every_kind_runs(worker: Any, monkeypatch: Any, *, says: str = "", **database: Any) -> Any:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    monkeypatch.setenv("TEST_DATABASE", json.dumps(database))
    many = enqueue_many(record.call(str(n)) for n in range(300))
    kinds = [
        enqueue(coroutine, 0.1, "async"),
        enqueue(fails, 1),
        enqueue(reports_progress),
        enqueue(record.using(delay=0.5), "delayed"),
    ]
    bad = [enqueue(terminal), enqueue(later, 0.2)]
    running = worker()
    until(lambda: all(get(r.id).state == "done" for r in [*many, *kinds]), 60)
    until(lambda: all(get(r.id).state == "dead" for r in bad), 60)
    running.wait_for(says)  # a verdict on LISTEN takes a second, these jobs hardly more
    assert running.stop() == 0
    assert "Traceback" not in running.output
    return running


def test_a_pool_smaller_than_the_threads_is_refused(worker: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TEST_DATABASE", '{"OPTIONS": {"pool": {"min_size": 1, "max_size": 4}}}')
    refused = worker("--threads", "8")
    assert refused.wait(20) == 1
    assert "max_size" in refused.output
    assert "--threads" in refused.output


@pytest.fixture
def pgbouncer(postgres_server: servers.PostgresServer, tmp_path: Path) -> Iterator[int]:
    """PgBouncer in transaction mode before the tests' server; its port."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not Path(program).exists():
        pytest.skip("no pgbouncer on PATH; the self-test's test below stands in for it")
    parts = urlsplit(postgres_server.url())
    account = servers.Account.unprivileged()
    folder = servers._temporary_folder("pgbouncer", account)
    port = servers.free_port()
    (folder / "users").write_text(f'"{parts.username}" "{parts.password or ""}"\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host={parts.hostname} port={parts.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {folder}/users\npool_mode = transaction\ndefault_pool_size = 3\n"
    )
    process = subprocess.Popen(
        [program, str(folder / "ini")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        **(account.popen() if account else {}),
    )
    until(lambda: answers(postgres_server.url(), port))
    yield port
    process.send_signal(signal.SIGTERM)
    process.wait(10)
    shutil.rmtree(folder, ignore_errors=True)


def answers(url: str, port: int) -> bool:
    parts = urlsplit(url)
    netloc = f"{parts.username}:{parts.password or ''}@127.0.0.1:{port}"
    try:
        psycopg.connect(parts._replace(netloc=netloc).geturl(), connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def test_behind_pgbouncer_in_transaction_mode_every_kind_of_job_runs_by_polling(
    worker: Any, monkeypatch: Any, pgbouncer: int
) -> None:
    database = {"HOST": "127.0.0.1", "PORT": str(pgbouncer), "DISABLE_SERVER_SIDE_CURSORS": True}
    deaf = "LISTEN delivers nothing on database 'default'"
    running = every_kind_runs(worker, monkeypatch, says=deaf, **database)
    assert running.output.count(deaf) == 1


def test_a_listen_that_delivers_nothing_is_noticed_and_said_once(
    transactional_db: None, monkeypatch: Any, caplog: Any
) -> None:
    """As behind a pooler in transaction mode: LISTEN is accepted, no message ever comes."""
    heard: list[Hint] = []
    monkeypatch.setattr(listening, "PATIENCE", 0.2)
    monkeypatch.setattr(listening.Listener, "_listen_on", lambda self, connection: None)
    deaf = listening.Listener(heard.append)
    deaf.start()
    until(lambda: "LISTEN delivers nothing" in caplog.text, 10)
    assert not deaf.working
    deaf.stop()
    deaf.join(5)
    assert caplog.text.count("LISTEN delivers nothing") == 1


def test_noop_jobs_need_no_connection_of_their_threads(private: Any, private_worker: Any) -> None:
    """Sessions of a worker process: four loops, LISTEN, and those that bodies asked for."""
    running = private_worker("--threads", "8")
    enqueue_many(noop.call(n) for n in range(50))
    until(lambda: Job.objects.filter(state="done").count() == 50)
    connections["private"].close()
    with psycopg.connect(private.url(), autocommit=True) as admin:
        row = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s",
            [connections.settings["private"]["NAME"]],
        ).fetchone()
    assert row is not None
    assert row[0] <= 6
    assert running.stop() == 0
