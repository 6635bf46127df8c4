"""The control loop: relay, waker, scheduler and janitor in one thread, and how long it sleeps."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from django_jobs import conf
from django_jobs.loops import janitor, overflow, relay
from django_jobs.loops.plan import Plan
from django_jobs.loops.scheduler import Scheduler
from django_jobs.loops.waker import Waker, answer
from django_jobs.models.peeking import Peek, peek
from django_jobs.models.waking import WINDOW, Hint
from django_jobs.operations import outbox_aliases

SECOND_LOOK = 2 * WINDOW
"""Seconds after a hint at which the loops look again: what came just after it was not told."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What the control loop knows of its process, and may tell it."""

    listening: Callable[[], bool]
    """Whether hints arrive, so that it need not poll."""
    busy: Callable[[], bool]
    """Whether the process holds runs."""
    claim: Callable[[], None]
    beat: Callable[[], None]
    finish: Callable[[], None]
    report: Callable[[str], None]


class Control:
    """Looks at what there is to do; ``tick`` returns the seconds until it should look again."""

    def __init__(self, plan: Plan, alias: str, waker: Waker, reach: Reach) -> None:
        self.plan, self.alias, self.waker, self.reach = plan, alias, waker, reach
        self.scheduler = Scheduler()
        self._staged, self._emitted = True, False
        self._quiet = 0
        self._second_look, self._stopped_lately = 0.0, False
        self._janitor_due = time.monotonic() + conf.current().janitor_interval * random.random()

    def hear(self, hint: Hint) -> None:
        """Take note of a hint, from any thread; the loop is then woken."""
        self._second_look = time.monotonic() + SECOND_LOOK
        if hint is Hint.STAGED:
            self._staged = True
        elif hint is Hint.READY:
            self.reach.claim()
        elif hint is Hint.EMITTED:
            self._emitted = True
        else:
            self._stopped_lately = True
            self.reach.beat()

    def tick(self) -> float:
        """Publish and wake what is due, tell the other loops what they can do."""
        self._look_for_more_stops()
        if "scheduler" in self.plan.loops and self.scheduler.tick():
            self._staged = True
        if self._do_hinted():
            self._quiet = 0
            return 0.0
        seen = peek(self.alias, outbox_aliases(), self.plan.queues)
        if "waker" in self.plan.loops and self.waker.tick():
            self._quiet = 0
            return 0.0
        if seen.ready:
            self.reach.claim()
        if seen.suspects and not self.plan.suspects:
            self.reach.report("suspects")
        self._tidy()
        if self._is_over(seen):
            self.reach.finish()
        # An overflow ends with nothing staged; somebody must look for its end.
        self._staged = self._staged or seen.staged or overflow.is_open()
        return self._pause(seen.next_due, busy=seen.staged or seen.ready)

    def _look_for_more_stops(self) -> None:
        if self._stopped_lately and time.monotonic() >= self._second_look:
            self._stopped_lately = False
            self.reach.beat()

    def _do_hinted(self) -> bool:
        """What a hint announced is done before anything else is looked for; whether it was."""
        staged, self._staged = self._staged, False
        emitted, self._emitted = self._emitted, False
        if staged and "relay" in self.plan.loops and self._relay():
            self._staged, self._emitted = True, emitted
            return True
        return emitted and "waker" in self.plan.loops and answer() > 0

    def _relay(self) -> int:
        return sum(relay.tick(alias) for alias in outbox_aliases())

    def _tidy(self) -> None:
        if "janitor" in self.plan.loops and time.monotonic() > self._janitor_due:
            again = janitor.tick() > 0
            pause = 1.0 if again else conf.current().janitor_interval
            self._janitor_due = time.monotonic() + pause

    def _is_over(self, seen: Peek) -> bool:
        over = not seen.suspects if self.plan.suspects else self.plan.drain and seen.nothing_left
        return over and not self.reach.busy()

    def _pause(self, next_due: float | None, *, busy: bool) -> float:
        settings = conf.current()
        self._quiet = 0 if busy else self._quiet + 1
        if not self.reach.listening() or self.plan.drain:
            pause = settings.poll_interval
        else:
            pause = settings.idle_poll * min(2.5, 1.0 + 0.5 * max(0, self._quiet - 1))
        pause *= random.uniform(0.9, 1.1)
        if self._staged:
            pause = min(pause, 0.02 if not busy else 0.05)
        if "scheduler" in self.plan.loops:
            pause = min(pause, self.scheduler.pause())
        second_look = self._second_look - time.monotonic()
        if second_look > 0:
            pause = min(pause, second_look)
        return pause if next_due is None else max(0.0, min(pause, next_due))
