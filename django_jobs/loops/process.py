"""One worker process: its loops, its shutdown."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django_jobs import conf
from django_jobs.connections import prepare_sqlite
from django_jobs.current import enter_worker_process
from django_jobs.ids import new_token
from django_jobs.leases import UNSTARTED_LIMIT, LeaseBook
from django_jobs.loops import janitor, relay, waker
from django_jobs.loops.listener import Listener
from django_jobs.loops.runner import LoopThread
from django_jobs.loops.settler import Settler
from django_jobs.loops.waker import Waker
from django_jobs.loops.worker import Worker
from django_jobs.memory import resident_megabytes
from django_jobs.models import picking
from django_jobs.models.peeking import peek
from django_jobs.models.waking import Hint, subscribe
from django_jobs.operations import outbox_aliases
from django_jobs.outcomes import Shed

logger = logging.getLogger("django_jobs.process")

LOOPS = ("relay", "waker", "worker", "janitor")
RECYCLE = 75
"""Exit code: this process wants to be replaced by a fresh one."""

ABANDONED = 70
"""Exit code: bodies were still running when the time was up; their rows were handed back."""

LOOK_INTERVAL = 0.5
"""How often running jobs are looked at for a cancel where no wake-up tells of it."""

SQLITE_LEASE = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process is told to do. ``max_rss`` is in megabytes."""

    queues: tuple[str, ...] = ("default",)
    threads: int = 4
    async_slots: int = 20
    loops: tuple[str, ...] = LOOPS
    drain: bool = False
    max_jobs: int | None = None
    max_rss: int | None = None
    suspects: bool = False


class Process:
    """The loops of one process. ``report`` tells the supervisor what it should know."""

    def __init__(self, plan: Plan, report: Callable[[str], None] = lambda _: None) -> None:
        settings = conf.current()
        self.plan, self.alias, self._report = plan, settings.database, report
        self.name = f"{socket.gethostname()}:{os.getpid()}:{new_token().hex[:8]}"
        postgres = picking.is_postgres(self.alias)
        lease = settings.lease if postgres else max(settings.lease, SQLITE_LEASE)
        self.leases = LeaseBook(lease)
        self.settler = Settler(self.leases, on_delayed=lambda: self.control.wake())
        # SQLite has one writer at a time: fewer, larger settles leave the bodies more room.
        self._settle_pause = 0.0 if postgres else 0.05
        self.worker = Worker(
            self.leases,
            self.settler,
            name=self.name,
            queues=plan.queues,
            threads=plan.threads,
            async_slots=plan.async_slots,
            suspects=plan.suspects,
            on_death=self._on_death,
        )
        self.waker = Waker()
        self.listener = Listener(self._on_hint)
        self.ended = threading.Event()
        self.exit_code = 0
        self._staged = True
        self._emitted = False
        self._quiet = 0
        self._janitor_due = time.monotonic() + settings.janitor_interval * random.random()
        self._beat_all, self._look_due = False, 0.0
        beat = min(0.25, lease / 12)
        self.control = self._loop("control", self._control, on_outage=self.waker.outage)
        self.claimer = self._loop("claimer", self._claim)
        self.lease_thread = self._loop("leases", lambda: self._watch(beat))
        self.settling = self._loop("settler", self._settle)

    def _loop(
        self, name: str, tick: Callable[[], float], on_outage: Callable[[], None] | None = None
    ) -> LoopThread:
        return LoopThread(
            name, tick, alias=self.alias, on_outage=on_outage, on_death=self._on_death
        )

    def start(self) -> None:
        """Start every thread; returns at once."""
        enter_worker_process()
        prepare_sqlite()
        self._unsubscribe = subscribe(self._on_hint)
        self.worker.start()
        for loop in (self.settling, self.lease_thread, self.control):
            loop.start()
        if "worker" in self.plan.loops:
            self.claimer.start()
        if self.listener.possible:
            self.listener.start()
        logger.info("worker %s started: queues %s", self.name, ", ".join(self.plan.queues))

    def finish(self, exit_code: int = 0) -> None:
        """Have the process shut down; the first reason stands."""
        if not self.ended.is_set():
            self.exit_code = exit_code
            self.ended.set()

    def take_back(self, lost_workers: Sequence[str]) -> None:
        """Make the jobs of workers that are known to have ended ready again."""
        self.waker.lost(lost_workers)
        self.control.wake()

    def _on_death(self, name: str) -> None:
        self.finish(1)

    def _on_hint(self, hint: Hint) -> None:
        if hint is Hint.STAGED:
            self._staged = True
            self.control.wake()
        elif hint is Hint.READY:
            self.claimer.wake()
        elif hint is Hint.EMITTED:
            self._emitted = True
            self.control.wake()
        else:
            self._beat_all = True
            self.lease_thread.wake()

    def _control(self) -> float:
        if self._do_hinted():
            self._quiet = 0
            return 0.0
        seen = peek(self.alias, outbox_aliases(), self.plan.queues)
        if "waker" in self.plan.loops and self.waker.tick():
            self._quiet = 0
            return 0.0
        if seen.ready:
            self.claimer.wake()
        if seen.suspects and not self.plan.suspects:
            self._report("suspects")
        if "janitor" in self.plan.loops and time.monotonic() > self._janitor_due:
            again = janitor.tick() > 0
            pause = 1.0 if again else conf.current().janitor_interval
            self._janitor_due = time.monotonic() + pause
        over = not seen.suspects if self.plan.suspects else self.plan.drain and seen.nothing_left
        if over and not len(self.leases):
            self.finish()
        self._staged = self._staged or seen.staged
        return self._pause(seen.next_due, busy=seen.staged or seen.ready)

    def _do_hinted(self) -> bool:
        """What a wake-up announced is done before anything else is looked for; whether it was."""
        staged, self._staged = self._staged, False
        if staged and "relay" in self.plan.loops and self._relay():
            self._staged = True
            return True
        return self._emitted and "waker" in self.plan.loops and waker.answer() > 0

    def _relay(self) -> int:
        return sum(relay.tick(alias) for alias in outbox_aliases())

    def _pause(self, next_due: float | None, *, busy: bool) -> float:
        settings = conf.current()
        self._quiet = 0 if busy else self._quiet + 1
        if not self.listener.working or self.plan.drain:
            pause = settings.poll_interval
        else:
            pause = settings.idle_poll * min(2.5, 1.0 + 0.5 * max(0, self._quiet - 1))
        pause *= random.uniform(0.9, 1.1)
        emitted, self._emitted = self._emitted, False
        if self._staged or emitted:  # A second hint within the window of the first was not sent.
            pause = min(pause, 0.02 if not busy else 0.05)
        return pause if next_due is None else max(0.0, min(pause, next_due))

    def _claim(self) -> float:
        if self.ended.is_set() or self._used_up():
            return 60.0
        return 0.0 if self.worker.tick() else 60.0

    def _used_up(self) -> bool:
        """Whether this process has run its share and should be replaced."""
        plan = self.plan
        if plan.max_jobs is not None and self.settler.finished + len(self.leases) >= plan.max_jobs:
            if not len(self.leases):
                self.finish(RECYCLE)
            return True
        # One that is above it from its start still does some work, or nobody would.
        worked = self.settler.finished > 0
        if worked and plan.max_rss is not None and resident_megabytes() > plan.max_rss:
            self.finish(RECYCLE)
            return True
        return False

    def _settle(self) -> float:
        if self.settler.tick():
            self.claimer.wake()
            if self.waker.parents_wait:
                self.control.wake()
        return self._settle_pause

    def _watch(self, beat: float) -> float:
        everything, self._beat_all = self._beat_all, False
        self.leases.watch()
        self.worker.hand_back_unstarted(0.0 if self.ended.is_set() else UNSTARTED_LIMIT)
        self.leases.beat(everything=everything)
        if not self.listener.working and time.monotonic() > self._look_due:
            self._look_due = time.monotonic() + LOOK_INTERVAL
            self.leases.look()
        return beat

    def shut_down(self, grace: float, impatient: Callable[[], bool] = lambda: False) -> int:
        """Stop claiming, let running bodies end within ``grace`` seconds, hand the rest back.

        Never takes longer than ``grace`` and a few seconds, even when the database hangs.
        Returns the exit code. ``impatient`` is asked now and then whether to abort at once.
        """
        began = time.monotonic()
        self.finish()
        self.leases.close()
        self.claimer.stop()
        self.control.stop()
        self.lease_thread.wake()  # It hands back what has not started, a late claim too.
        self._await_bodies(began + grace, impatient)
        for held in self.leases.running():
            held.stop()
        self._await_bodies(time.monotonic() + 1.0)
        left = self.leases.running()
        for held in left:
            self.settler.put(held, Shed("shutdown"))
        self._await_settles(2.0)
        unstored = not self.settler.idle()
        self._unsubscribe()
        self.listener.stop()
        self.worker.stop()
        self.lease_thread.stop()
        self.settling.stop()
        self.settler.nudge()
        if left or unstored:
            logger.error(
                "worker %s: %d bodies were abandoned, results unstored: %s",
                self.name,
                len(left),
                unstored,
            )
            return ABANDONED
        return self.exit_code

    def _await_bodies(self, deadline: float, impatient: Callable[[], bool] = lambda: False) -> None:
        while time.monotonic() < deadline and not impatient():
            held = len(self.leases) if self.settling.is_alive() else len(self.leases.running())
            # A claim may be on its way still, and what it brings must go back.
            if not held and not self.claimer.is_alive():
                return
            time.sleep(0.02)

    def _await_settles(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        if not self.settling.is_alive():
            _within(seconds, self.settler.tick)
        while not self.settler.idle() and time.monotonic() < deadline:
            time.sleep(0.01)


def _within(seconds: float, work: Callable[[], object]) -> None:
    """Do ``work`` in a thread and wait at most ``seconds``: the database may hang."""

    def quietly() -> None:
        try:
            work()
        except Exception as error:
            logger.warning("while shutting down: %s", error)

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    thread.join(seconds)
