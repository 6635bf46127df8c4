"""After a failure nothing waits for the server again until a pause is over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("django_jobs.lanes")

COOL_DOWN = 5.0
"""Seconds without a call after a failure; then one caller tries for all."""


class Breaker:
    """Lets calls through while the server answers. Thread-safe.

    One line is logged when an outage begins and one when it ends, however many calls fail.
    """

    def __init__(
        self, cool_down: float = COOL_DOWN, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cool_down, self._clock = cool_down, clock
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._next_try = 0.0

    @property
    def closed(self) -> bool:
        """Whether the last call succeeded (or there was none)."""
        return self._away_since is None

    @property
    def pausing(self) -> bool:
        """Whether ``admits`` would say no."""
        return self._away_since is not None and self._clock() < self._next_try

    def admits(self) -> bool:
        """Whether a call may be made now. In an outage that is one caller per pause."""
        if self._away_since is None:
            return True
        with self._lock:
            now = self._clock()
            if self._away_since is not None and now < self._next_try:
                return False
            # Others are kept out while this one tries.
            self._next_try = now + self._cool_down
            return True

    def failed(self, error: BaseException) -> None:
        """A call failed; ``error`` says why."""
        with self._lock:
            now = self._clock()
            began, self._next_try = self._away_since is None, now + self._cool_down
            if began:
                self._away_since = now
        if began:
            logger.warning(
                "lane signals are away: %s. Jobs go on; a superseded run stops at its next "
                "heartbeat instead.",
                describe(error),
            )

    def succeeded(self) -> None:
        """A call was answered."""
        if self._away_since is None:
            return
        with self._lock:
            since, self._away_since = self._away_since, None
        if since is not None:
            logger.info("lane signals are back after %.1f s", self._clock() - since)


def describe(error: BaseException) -> str:
    """The error in one line, as the server or the client worded it."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
