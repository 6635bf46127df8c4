"""Lanes on two servers: the one that all tests share, and a Valkey or Redis of these tests' own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from django_jobs.lanes import Lane, wiring
from tests import servers

PREFIX = f"test_{os.getpid()}"


@pytest.fixture(scope="session", autouse=True)
def no_key_is_left_behind(redis_server: servers.RedisServer) -> Iterator[None]:
    """A tombstone lasts seven days, and the shared server may be somebody's own."""
    yield
    with redis.Redis.from_url(redis_server.url()) as client:
        for key in client.scan_iter(match=f"{PREFIX}:*", count=1000):
            client.delete(key)


@pytest.fixture(scope="session")
def wheel_server() -> Iterator[servers.RedisServer]:
    server = servers.start_private_redis()
    yield server
    server.close()


def use(settings: Any, server: servers.RedisServer | None, **changes: Any) -> None:
    """Have lane signals go to ``server``; ``changes`` are further settings of ``DJANGO_JOBS``."""
    if server is not None:
        location = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url()}
        settings.CACHES = {**settings.CACHES, "lanes": location}
    alias = "lanes" if server is not None else None
    ours = {"LANES_CACHE": alias, "LANES_PREFIX": PREFIX, **changes}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **ours}


@pytest.fixture(params=["shared", "wheel"])
def lane_server(request: pytest.FixtureRequest, settings: Any, db: None) -> servers.RedisServer:
    """The server that carries the signals; the test runs once on each. Not to be stopped."""
    name = {"shared": "redis_server", "wheel": "wheel_server"}[request.param]
    server: servers.RedisServer = request.getfixturevalue(name)
    # A server that is busy with other tests is no outage.
    use(settings, server, LANES_TIMEOUT=5.0)
    return server


@pytest.fixture
def raw(lane_server: servers.RedisServer) -> Iterator[redis.Redis]:
    """A plain client, to look at the keys and to disturb them."""
    with redis.Redis.from_url(lane_server.url(), decode_responses=True) as client:
        yield client


@pytest.fixture
def lane(lane_server: servers.RedisServer) -> Lane:
    """A lane that no other test uses."""
    return Lane("index", "", uuid.uuid4().hex)


@pytest.fixture
def signals(settings: Any, db: None) -> Iterator[Callable[..., None]]:
    """``signals(server, LANES_TIMEOUT=...)`` sends lane signals to a server that may be stopped."""

    def send_to(server: servers.RedisServer | None, **changes: Any) -> None:
        use(settings, server, **changes)

    yield send_to
    wiring.forget()
