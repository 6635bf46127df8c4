"""The connection to the server: whatever the alias says about it, our timeouts hold."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from django_jobs.errors import LanesUnavailable
from django_jobs.lanes import Claimed, Lane, wiring
from django_jobs.lanes.deadlines import BoundedSocket, within
from tests import servers
from tests.waiting import until


@pytest.fixture
def alias(settings: Any, signals: Any) -> Any:
    """Sends lane signals to the cache that the test describes."""

    def describe(location: str, **options: Any) -> None:
        signals(None)
        cache = {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": location,
            "OPTIONS": options,
        }
        settings.CACHES = {**settings.CACHES, "lanes": cache}
        settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "LANES_CACHE": "lanes"}

    return describe


def lane() -> Lane:
    return Lane("connection", "", uuid.uuid4().hex)


def test_an_alias_that_waits_for_ever_and_repeats_does_not_make_us_wait(
    alias: Any, private_redis: servers.RedisServer
) -> None:
    """Neither the alias' timeouts nor its pool nor its repeats are ours."""
    alias(
        private_redis.url(),
        SOCKET_TIMEOUT=60,
        SOCKET_CONNECT_TIMEOUT=60,
        CONNECTION_POOL_CLASS="redis.BlockingConnectionPool",
        CONNECTION_POOL_KWARGS={
            "max_connections": 1,
            "timeout": 60,
            "retry_on_timeout": True,
            "health_check_interval": 1,
        },
    )
    assert lane().claim("a", 1) == Claimed(None)
    private_redis.freeze()
    began = time.monotonic()
    with pytest.raises(LanesUnavailable, match="Timeout"):
        lane().claim("a", 1)
    assert time.monotonic() - began < 0.4
    private_redis.thaw()


def test_the_database_number_the_password_and_the_user_are_the_alias_own(
    alias: Any, private_redis: servers.RedisServer
) -> None:
    with redis.Redis.from_url(private_redis.url(db=4)) as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all")
        client.config_set("requirepass", "other")
        place = urlsplit(private_redis.url())
        alias(f"redis://worker:secret@{place.hostname}:{place.port}/4")
        mine = lane()
        mine.claim("a", 1)
        assert client.exists(mine.keys().lane)


def test_a_socket_of_the_file_system_will_do(alias: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        server = servers.start_private_redis(options=("--unixsocket", path))
        try:
            alias(f"unix://{path}?db=2")
            assert lane().claim("a", 1) == Claimed(None)
        finally:
            wiring.forget()
            server.close()


@pytest.fixture
def sentinel(private_redis: servers.RedisServer) -> Iterator[int]:
    """The port of a sentinel that watches ``private_redis`` under the name ``main``."""
    _, program = servers.find_redis()
    port, watched = servers.free_port(), urlsplit(private_redis.url()).port
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "sentinel.conf"
        conf.write_text(
            f"bind 127.0.0.1\nport {port}\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {watched} 1\n"
        )
        process = subprocess.Popen(
            [program, conf, "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            until(lambda: answers(port))
            yield port
        finally:
            process.kill()
            process.wait()


def answers(port: int) -> bool:
    with redis.Redis(port=port) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def test_a_server_behind_sentinel_will_do(alias: Any, sentinel: int) -> None:
    alias(
        "redis://main/4",
        CLIENT_CLASS="django_redis.client.SentinelClient",
        CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory",
        SENTINELS=[("127.0.0.1", sentinel)],
    )
    assert lane().claim("a", 1) == Claimed(None)


def test_an_earlier_deadline_around_a_call_stands() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        bounded = BoundedSocket(ours)
        began = time.monotonic()
        with pytest.raises(TimeoutError), within(0.05), within(30):
            bounded.recv(1)
        assert time.monotonic() - began < 5


def test_a_look_that_does_not_wait_does_not_wait_within_a_deadline_either() -> None:
    """The client library looks like this whether an idle connection was closed."""
    ours, theirs = socket.socketpair()
    with ours, theirs, within(30):
        bounded = BoundedSocket(ours)
        bounded.settimeout(0)
        with pytest.raises(BlockingIOError):
            bounded.recv(1)
        bounded.settimeout(None)
        theirs.sendall(b"x")
        assert bounded.recv(1) == b"x"
