"""Threads, pacing and outages, written once for every loop."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from django.db import InterfaceError, InternalError, OperationalError

from django_jobs import connections as sessions
from django_jobs.models import picking

logger = logging.getLogger("django_jobs.runner")

LONGEST_BACKOFF = 30.0


class LoopThread(threading.Thread):
    """Calls ``tick`` again and again until told to stop.

    ``tick`` returns how many seconds may pass before the next call; ``wake`` cuts them short.
    When the database is away it is tried again with a growing, jittered delay, and one line is
    logged at the start and one at the end of the outage. Any other error is a defect: it is
    logged with its traceback, and the tick is tried again in the same manner.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], float],
        *,
        alias: str,
        on_outage: Callable[[], None] | None = None,
        on_death: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._tick, self._alias = tick, alias
        self._on_outage, self._on_death = on_outage, on_death
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._failures = 0
        self._away_since: float | None = None

    def wake(self) -> None:
        """Have the next tick begin now."""
        self._wake.set()

    def stop(self) -> None:
        """End after the tick in flight."""
        self._stopping.set()
        self._wake.set()

    def run(self) -> None:
        """The thread's body."""
        try:
            sessions.own_connection(self._alias)
            while not self._stopping.is_set():
                pause = self._once()
                if pause > 0 and not self._stopping.is_set():
                    self._wake.wait(pause)
                self._wake.clear()
        except BaseException as error:
            logger.critical("loop %s died", self.name, exc_info=error)
            if self._on_death is not None:
                self._on_death(self.name)
        finally:
            sessions.close_all()

    def _once(self) -> float:
        try:
            pause = self._tick()
        except (OperationalError, InterfaceError) as error:
            return self._outage(error)
        except InternalError as error:
            return self._outage(error) if picking.is_outage(error) else self._defect()
        except Exception:
            return self._defect()
        if self._away_since is not None:
            away = time.monotonic() - self._away_since
            logger.warning("loop %s: the database is back after %.1f s", self.name, away)
            self._away_since = None
        self._failures = 0
        return pause

    def _defect(self) -> float:
        logger.exception("loop %s: this tick failed; it is tried again", self.name)
        sessions.close_all()
        return self._backoff()

    def _outage(self, error: Exception) -> float:
        if self._away_since is None:
            self._away_since = time.monotonic()
            logger.warning("loop %s: the database is away: %s", self.name, str(error).strip())
        if self._on_outage is not None:
            self._on_outage()
        sessions.close_all()
        return self._backoff()

    def _backoff(self) -> float:
        self._failures += 1
        ceiling = min(LONGEST_BACKOFF, 0.1 * 2.0 ** min(self._failures, 10))
        return ceiling * random.uniform(0.5, 1.0)
