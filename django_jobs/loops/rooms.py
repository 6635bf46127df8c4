"""How many runs a worker claims, and of which kind: sync and async bodies take other places."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

PREFETCH_LIMIT = 500
RATE_WINDOW = 0.25
"""Seconds: what finished within them is what may be claimed ahead."""

STRIDE = 20
"""A claim of one kind steps over rows of the other: at most one part in so many of the time."""

SHORTEST_STRIDE = 0.02
LONGEST_PAUSE = 60.0


class Prefetch:
    """How many runs may wait for a place: one for each idle place, or what finishes soon.

    A thread that is busy for ten minutes must not keep jobs waiting that another worker could
    start; threads that finish thousands a second must not wait for a claim.
    """

    def __init__(self, idle: Callable[[], int]) -> None:
        self.low = -1
        """With so few left waiting, the next claim should be on its way: settles are too late."""
        self._idle = idle
        self._counts: deque[tuple[float, int]] = deque()
        self.lately = 0
        """How many finished within the window, at the last look."""

    def room(self, finished: int, unstarted: int) -> int:
        """How many runs to claim now; 0 while enough wait already."""
        now = time.monotonic()
        self._counts.append((now, finished))
        while self._counts[0][0] < now - RATE_WINDOW and len(self._counts) > 1:
            self._counts.popleft()
        self.lately = finished - self._counts[0][1]
        idle = self._idle()
        target = max(idle, min(PREFETCH_LIMIT, self.lately))
        self.low = target // 2 if self.lately > idle else -1
        room = target - unstarted
        return room if room > target // 2 else 0


@dataclass(frozen=True, slots=True)
class Ask:
    """What one claim asks for. ``coroutines``: only async bodies, none of them, or any kind."""

    room: int
    coroutines: bool | None = None


NOTHING = Ask(0)


class Rooms:
    """What to claim where sync and async bodies wait in one queue.

    A claim cannot know what it will bring, so while both kinds have room it asks for no more
    than either can take, or than finished of one kind lately. While one kind has none, its names
    are left out: they would keep the others waiting, or come only to be handed back.
    """

    def __init__(self, threads: Prefetch, slots: Prefetch) -> None:
        self._threads, self._slots = threads, slots
        self._one_kind_at = 0.0
        self._put_off = False

    def ask(self, finished: tuple[int, int], unstarted: tuple[int, int]) -> Ask:
        """What to claim now. Both count sync runs first and async ones second."""
        sync = self._threads.room(finished[0], unstarted[0])
        coroutines = self._slots.room(finished[1], unstarted[1])
        if sync and coroutines:
            ahead = min(sync, self._threads.lately), min(coroutines, self._slots.lately)
            return Ask(max(min(sync, coroutines), *ahead))
        self._put_off = time.monotonic() < self._one_kind_at
        if self._put_off:
            return NOTHING
        return Ask(sync or coroutines, coroutines=bool(coroutines))

    def took(self, ask: Ask, seconds: float, found: int) -> None:
        """A claim took so long and found so many. One kind's is not repeated at once in vain."""
        if ask.coroutines is not None and not found:
            pause = max(SHORTEST_STRIDE, STRIDE * seconds)
            self._one_kind_at = time.monotonic() + pause

    def pause(self) -> float:
        """Seconds until a claim may be worth another try, if nobody wakes the worker before."""
        if not self._put_off:
            return LONGEST_PAUSE
        return max(0.001, self._one_kind_at - time.monotonic())
