"""A connection that keeps to one deadline, whatever the server does.

A socket's own timeout counts anew at each read, so that a handshake of several replies, or a server
that sends a byte now and then, would take a multiple of it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_now = threading.local()

_LEAST = 0.001
"""A timeout of 0 would mean: do not wait at all."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Everything that this thread's bounded connections do in here ends after ``seconds``.

    An earlier deadline around it stands. Then they raise ``TimeoutError``. What no socket option
    bounds is looking up a host's name.
    """
    before = getattr(_now, "deadline", None)
    ends = time.monotonic() + seconds
    _now.deadline = ends if before is None else min(before, ends)
    try:
        yield
    finally:
        _now.deadline = before


def _left(wanted: float | None) -> float | None:
    deadline = getattr(_now, "deadline", None)
    if deadline is None:
        return wanted
    left: float = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time for this call is over")
    left = max(left, _LEAST)
    return left if wanted is None else min(wanted, left)


class BoundedSocket:
    """A socket whose every wait ends with the deadline of the thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._wanted = sock.gettimeout()

    def settimeout(self, seconds: float | None) -> None:
        """As of a socket: the longest single wait. 0 does not wait."""
        self._wanted = seconds

    def gettimeout(self) -> float | None:
        """What was set."""
        return self._wanted

    def _prepare(self) -> socket.socket:
        self._sock.settimeout(_left(self._wanted))
        return self._sock

    def recv(self, *args: Any) -> bytes:
        """As of a socket."""
        return self._prepare().recv(*args)

    def recv_into(self, *args: Any) -> int:
        """As of a socket."""
        return self._prepare().recv_into(*args)

    def sendall(self, *args: Any) -> None:
        """As of a socket; its timeout is for the whole text already."""
        self._prepare().sendall(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@cache
def bounded(connection_class: type[Any]) -> type[Any]:
    """``connection_class`` of the client library with sockets that keep the deadline."""

    class Bounded(connection_class):  # type: ignore[misc]
        socket_connect_timeout: float | None

        def _connect(self) -> BoundedSocket:
            wanted = self.socket_connect_timeout
            self.socket_connect_timeout = _left(wanted)
            try:
                return BoundedSocket(super()._connect())
            finally:
                self.socket_connect_timeout = wanted

    return Bounded
