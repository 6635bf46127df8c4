"""Calls of scripts on the Redis (or Valkey) server of one cache alias.

Every call ends within the timeout. A failure opens the breaker, and until its pause is over calls
fail at once.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import redis
from django_redis import get_redis_connection
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from django_jobs.errors import LaneKeyTaken, LanesUnavailable
from django_jobs.lanes.breaker import Breaker, describe
from django_jobs.lanes.deadlines import bounded, within
from django_jobs.lanes.scripts import ScriptCall

Reply = tuple[str, ...]

_FOREIGN = re.compile(r"LANEKEY (\S+)")
_MANY_CONNECTIONS = 2**31
"""Threads are bounded by whoever starts them; one too many must not look like an outage."""

_ADDRESS = {
    *("host", "port", "path", "db", "username", "password", "credential_provider"),
    *("client_name", "socket_keepalive", "socket_keepalive_options", "redis_connect_func"),
}
"""What is taken over from the alias. The rest are timeouts, repeats and the library's own."""


class Server:
    """The server behind ``alias``. Thread-safe; ``timeout`` (seconds) bounds each call."""

    def __init__(self, alias: str, timeout: float) -> None:
        self.alias, self.timeout = alias, timeout
        self.breaker = Breaker()
        self._client: redis.Redis | None = None
        self._lock = threading.Lock()

    def call(self, calls: Sequence[ScriptCall]) -> list[Reply | LaneKeyTaken]:
        """The replies of ``calls``, sent in one round trip, in their order.

        A key that something else wrote is an error in its own place, and no harm to the others.
        Raises ``LanesUnavailable`` when the server does not answer, or refuses.
        """
        if not self.breaker.admits():
            raise LanesUnavailable(f"cache {self.alias!r} did not answer a moment ago")
        try:
            with within(self.timeout):
                replies = [_read(raw) for raw in self._send(calls)]
        except Exception as error:
            # Anything but an answer is an outage: the client library raises whatever a socket, a
            # resolver or a wrongly configured alias raises.
            self.breaker.failed(error)
            raise LanesUnavailable(f"cache {self.alias!r}: {describe(error)}") from error
        self.breaker.succeeded()
        return replies

    def info(self) -> dict[str, Any]:
        """What the server says about itself; raises ``LanesUnavailable``."""
        try:
            with within(self.timeout):
                return dict(self.client().info())
        except Exception as error:
            raise LanesUnavailable(f"cache {self.alias!r}: {describe(error)}") from error

    def client(self) -> redis.Redis:
        """The client, with our timeouts; made at the first use."""
        with self._lock:
            if self._client is None:
                self._client = redis.Redis(connection_pool=_pool(self.alias, self.timeout))
            return self._client

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._client is not None:
                self._client.connection_pool.disconnect()
                self._client = None

    def _send(self, calls: Sequence[ScriptCall]) -> list[Any]:
        replies = self._pipeline(calls)
        lost = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if lost:
            # After a restart or SCRIPT FLUSH. Only what was not executed is sent again.
            again = self._pipeline([calls[n] for n in lost], load=True)
            for n, reply in zip(lost, again, strict=True):
                replies[n] = reply
        return replies

    def _pipeline(self, calls: Sequence[ScriptCall], load: bool = False) -> list[Any]:
        pipeline = self.client().pipeline(transaction=False)
        scripts = {call.script for call in calls} if load else set()
        for script in scripts:
            pipeline.script_load(script.text)
        for call in calls:
            pipeline.evalsha(call.script.sha, len(call.keys), *call.keys, *call.arguments)
        return pipeline.execute(raise_on_error=False)[len(scripts) :]


def _read(raw: Any) -> Reply | LaneKeyTaken:
    if isinstance(raw, ResponseError) and (found := _FOREIGN.search(str(raw))):
        return LaneKeyTaken(found[1])
    if isinstance(raw, Exception):
        raise raw
    if not isinstance(raw, list):
        raise RedisError(f"unexpected reply {raw!r}")
    return tuple(part.decode() if isinstance(part, bytes) else str(part) for part in raw)


def _pool(alias: str, timeout: float) -> redis.ConnectionPool:
    """A pool of our own: the alias' server and credentials, but our timeouts and no repeats.

    The alias' own pool may wait for ever, and the library's default is to repeat what failed.
    """
    theirs: Any = get_redis_connection(alias, write=True).connection_pool
    given = {
        name: value
        for name, value in theirs.connection_kwargs.items()
        if name in _ADDRESS or name.startswith("ssl")
    }
    given.update(
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        connection_class=bounded(theirs.connection_class),
        max_connections=_MANY_CONNECTIONS,
    )
    if isinstance(theirs, SentinelConnectionPool):
        sentinel: Any = SentinelConnectionPool
        pool: redis.ConnectionPool = sentinel(theirs.service_name, theirs.sentinel_manager, **given)
        return pool
    return redis.ConnectionPool(**given)
