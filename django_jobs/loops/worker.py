"""The worker: claims what its threads can start soon, and runs it."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from django_jobs import connections as sessions
from django_jobs import definitions
from django_jobs.executor import aexecute, execute
from django_jobs.leases import UNSTARTED_LIMIT, Held, LeaseBook
from django_jobs.loops.rooms import Ask, Prefetch, Rooms
from django_jobs.loops.settler import Settler
from django_jobs.models import NO_FLOOR, Floor, Job, picking
from django_jobs.outcomes import Outcome, Shed

logger = logging.getLogger("django_jobs.worker")

FLOOR_LIFE = 1.0
"""Seconds for which a claim may begin at the floor instead of at the head of the queue."""


Claimed = tuple[str, bool | None]
"""A queue, and what an ``Ask`` says of the kind of its bodies."""


class Floors:
    """Where the next claim of each queue, and of each kind, may begin."""

    def __init__(self) -> None:
        self._floors: dict[Claimed, tuple[float, Floor]] = {}

    def get(self, name: Claimed) -> Floor:
        """The floor of ``name``, or ``NO_FLOOR`` once a second and when it is unknown."""
        since, floor = self._floors.get(name, (0.0, NO_FLOOR))
        return floor if time.monotonic() - since < FLOOR_LIFE else NO_FLOOR

    def note(self, name: Claimed, asked: Floor, first: Floor | None) -> None:
        """A claim that asked from ``asked`` began at ``first``; ``None``: it found nothing."""
        if first is None:
            self._floors.pop(name, None)
        elif asked == NO_FLOOR:
            self._floors[name] = (time.monotonic(), first)
        elif name in self._floors:  # Else it was forgotten while the claim was under way.
            since, _ = self._floors[name]
            self._floors[name] = (since, first)

    def forget(self) -> None:
        """Something was put back, maybe below a floor."""
        self._floors.clear()


class Worker:
    """Claims for ``threads`` sync bodies and ``async_slots`` async ones of one process."""

    def __init__(
        self,
        leases: LeaseBook,
        settler: Settler,
        *,
        name: str,
        queues: Sequence[str],
        threads: int,
        async_slots: int,
        suspects: bool = False,
        on_death: Callable[[str], None] = lambda _: None,
        on_low: Callable[[], None] = lambda: None,
    ) -> None:
        self.leases, self.settler = leases, settler
        self._on_death, self._on_low, self._is_low = on_death, on_low, False
        self.name, self.queues, self.threads = name, tuple(queues), threads
        self.suspects = suspects
        self.floors = Floors()
        self._runs: queue.SimpleQueue[Held | None] = queue.SimpleQueue()
        self._busy = [False] * threads
        """For each thread, which alone writes its own place."""
        self._prefetch = Prefetch(lambda: self._busy.count(False))
        self._coroutines = Coroutines(self, async_slots)
        self.rooms = Rooms(self._prefetch, Prefetch(self._coroutines.idle))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads that run bodies."""
        for number in range(self.threads):
            thread = threading.Thread(
                target=self._work, args=(number,), name=f"body-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def tick(self) -> int:
        """Claim once from every queue while there is room; how many runs were claimed."""
        claimed = 0
        self._is_low = False
        for queue_name in self.queues:
            ask = self._ask()
            if ask.room <= 0:
                break
            claimed += self._claim(queue_name, ask)
        return claimed

    def _ask(self) -> Ask:
        finished = self.settler.finished
        if self.suspects:  # One at a time, and nothing beside it.
            return Ask(1 if len(self.leases) == 0 else 0)
        if not definitions.coroutines():
            return Ask(self._prefetch.room(finished, self.leases.unstarted()))
        done, waiting = self.settler.finished_coroutines, self.leases.unstarted_coroutines()
        return self.rooms.ask((finished - done, done), (self.leases.unstarted() - waiting, waiting))

    def _claim(self, queue_name: str, ask: Ask) -> int:
        claimed = queue_name, ask.coroutines
        floor, asked = self.floors.get(claimed), time.monotonic()
        runs = picking.retrying(
            lambda: Job.objects.all().claim(
                queue_name,
                room=ask.room,
                lease=self.leases.lease,
                worker=self.name,
                floor=floor,
                suspects=self.suspects,
                names=None if ask.coroutines is None else definitions.coroutines(),
                named=ask.coroutines is True,
            )
        )
        # First of all: what is not in the book is nobody's until its lease runs out.
        for held in self.leases.add(runs, asked):
            self._dispatch(held)
        first = (runs[0].priority, runs[0].run_at) if runs else None
        self.floors.note(claimed, floor, first)
        self.rooms.took(ask, time.monotonic() - asked, len(runs))
        return len(runs)

    def _dispatch(self, held: Held) -> None:
        definition = definitions.definition(held.run.name)
        if definition is not None and definition.is_async:
            held.is_coroutine = True
            self._coroutines.submit(held)
        else:
            self._runs.put(held)

    def _work(self, number: int) -> None:
        try:
            while (held := self._runs.get()) is not None:
                if not self._is_low and self._runs.qsize() <= self._prefetch.low:
                    self._is_low = True
                    self._on_low()
                if self.leases.start(held):
                    self._busy[number] = True
                    self._run(held)
                    self._busy[number] = False
        except BaseException as error:
            name = threading.current_thread().name
            logger.critical("thread %s died", name, exc_info=error)
            self._on_death(name)
        finally:
            sessions.close_all()

    def _run(self, held: Held) -> None:
        try:
            outcome = execute(held)
        except BaseException:
            self.settle(held, Shed("its thread died"))
            raise
        finally:
            held.end()
        self.settle(held, outcome)

    def hand_back_unstarted(self, older_than: float = UNSTARTED_LIMIT) -> int:
        """Give back what no thread has started; how many runs.

        Their leases are kept until that is stored, which takes as long as the database is away.
        """
        waiting = self.leases.take_unstarted(older_than)
        for held in waiting:
            self.settle(held, Shed("not started"))
        return len(waiting)

    def settle(self, held: Held, outcome: Outcome) -> None:
        """Hand an outcome to the settler; a row that was put back may be below a floor."""
        if isinstance(outcome, Shed):
            self.floors.forget()
        self.settler.put(held, outcome)

    def stop(self) -> None:
        """Let the threads end after what they run now."""
        for _ in self._threads:
            self._runs.put(None)
        self._coroutines.stop()


class Coroutines:
    """One event loop in a thread of its own, started with the first async job."""

    def __init__(self, worker: Worker, slots: int) -> None:
        self._worker, self._slots_count, self._busy = worker, slots, 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots: asyncio.Semaphore | None = None

    def idle(self) -> int:
        """How many slots run nothing."""
        return self._slots_count - self._busy

    def submit(self, held: Held) -> None:
        """Have an async body run as soon as one of the slots is free."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._slots = asyncio.Semaphore(self._slots_count)
            threading.Thread(target=self._loop.run_forever, name="coroutines", daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._run(held), self._loop)

    async def _run(self, held: Held) -> None:
        assert self._slots is not None
        async with self._slots:
            if self._worker.leases.start(held):
                self._busy += 1
                try:
                    outcome = await aexecute(held)
                finally:
                    self._busy -= 1
                self._worker.settle(held, outcome)

    def stop(self) -> None:
        """End the loop's thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
