"""Every run that this process holds: renewing leases, noticing losses, watching deadlines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django_jobs.current import CurrentJob
from django_jobs.lanes.advice import Claim
from django_jobs.models import Job, Run
from django_jobs.outcomes import Outcome

logger = logging.getLogger("django_jobs.leases")

UNSTARTED_LIMIT = 1.0
"""Seconds after which a claimed run that no thread has taken is handed back."""


@dataclass(slots=True)
class Held:
    """A run of ours.

    ``expired``: by this process's own clock another worker may have it. ``lost``: the row says so.
    """

    run: Run
    is_coroutine: bool = False
    renewed_at: float = field(default_factory=time.monotonic)
    started: bool = False
    expired: bool = False
    lost: bool = False
    handed_back: bool = False
    timed_out: bool = False
    thread: int | None = None
    """The thread of a sync body."""
    ended: bool = False
    ended_at: float = 0.0
    outcome: Outcome | None = None
    """How it ended, once that is stored; the row may say otherwise than the body."""
    current: CurrentJob | None = None
    interrupt: Callable[[], None] | None = None
    """Reaches into the body: cancels its task, or the statements of its connections."""
    _turn: list[None] = field(default_factory=lambda: [None])

    def take(self) -> bool:
        """Whether the caller decides what becomes of it: the first who asks, and no other.

        A body's thread asks before it starts, whoever hands it back asks before that. To take
        the one item of a list is atomic; a lock would be waited for by every thread.
        """
        try:
            self._turn.pop()
        except IndexError:
            return False
        return True

    def end(self) -> None:
        """Note that the body has ended, or will never begin."""
        if not self.ended:
            self.ended_at, self.ended = time.monotonic(), True

    @property
    def seconds(self) -> float:
        """How long the body took, or has taken so far; 0 for one that never began."""
        if self.run.began_at is None:
            return 0.0
        return (self.ended_at if self.ended else time.monotonic()) - self.run.began_at

    def stop(self) -> None:
        """Tell the body to end."""
        if self.current is not None:
            self.current.cancelled.set()
        interrupt = self.interrupt  # The body's thread may take it away between two looks.
        if interrupt is not None:
            interrupt()

    def stop_late_step(self) -> None:
        """Cancel what a step that is out of time does in SQL; the run itself goes on."""
        interrupt = self.interrupt
        if self.current is not None and self.current.step_is_late and interrupt is not None:
            self.current.step_interrupted = True
            interrupt()


def claim_of(run: Run) -> Claim:
    """The claim of a run on its lane."""
    assert run.lane is not None and run.lane_token is not None
    return Claim(run.name, run.tenant, run.lane, run.id, run.lane_token)


class LeaseBook:
    """The runs of one process, by job id. Thread-safe."""

    def __init__(self, lease: float) -> None:
        self.lease = lease
        self._held: dict[UUID, Held] = {}
        self._closed = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def ids(self) -> list[UUID]:
        """The jobs of the runs that this process holds."""
        with self._lock:
            return list(self._held)

    def close(self) -> None:
        """Let no further body start."""
        with self._lock:
            self._closed = True

    def add(self, runs: Sequence[Run], asked: float | None = None) -> list[Held]:
        """Take note of what was claimed, by a statement sent at ``asked`` (monotonic)."""
        added = [Held(run, renewed_at=run.claimed_at if asked is None else asked) for run in runs]
        with self._lock:
            self._held.update((held.run.id, held) for held in added)
        return added

    def start(self, held: Held) -> bool:
        """Whether the body may start: not when the run was handed back or lost meanwhile.

        Nor when the process stood still for a lease length and does not know of its loss yet.
        """
        late = time.monotonic() - held.renewed_at > self.lease
        if self._closed or held.lost or late or not held.take():
            return False
        held.started = True
        return True

    def remove(self, settled: Iterable[Held]) -> None:
        """Forget runs: they are settled, handed back or lost."""
        with self._lock:
            for held in settled:
                if self._held.get(held.run.id) is held:
                    del self._held[held.run.id]

    def unstarted(self) -> int:
        """How many runs wait for a thread."""
        with self._lock:
            return sum(not (held.started or held.handed_back) for held in self._held.values())

    def unstarted_coroutines(self) -> int:
        """How many of these wait for a slot on the loop of async bodies."""
        with self._lock:
            return sum(
                held.is_coroutine and not (held.started or held.handed_back)
                for held in self._held.values()
            )

    def running(self) -> list[Held]:
        """The runs whose bodies have started and not ended."""
        with self._lock:
            return [held for held in self._held.values() if held.started and not held.ended]

    def stuck(self, after: float) -> list[Held]:
        """The runs whose bodies go on ``after`` seconds past their timeouts."""
        oldest = time.monotonic() - after
        return [
            held
            for held in self.running()
            if held.current is not None and (held.current.deadline or oldest) < oldest
        ]

    def take_unstarted(self, older_than: float = 0.0) -> list[Held]:
        """What no thread has started within ``older_than`` seconds of its claim, nor ever will."""
        oldest = time.monotonic() - older_than
        with self._lock:
            taken = [
                held
                for held in self._held.values()
                if not (held.started or held.handed_back)
                and held.run.claimed_at <= oldest
                and held.take()
            ]
            for held in taken:
                held.handed_back = True
        return taken

    def beat(self, *, everything: bool = False) -> None:
        """Renew what is a third of its lease old (or ``everything``), and notice losses."""
        now = time.monotonic()
        with self._lock:
            due = [
                held
                for held in self._held.values()
                if not held.lost and (everything or now - held.renewed_at > self.lease / 3)
            ]
            stopping = [held for held in self._held.values() if held.lost and not held.ended]
        for start in range(0, len(due), 1000):
            self._renew(due[start : start + 1000])
        for held in stopping:
            if now - held.renewed_at > self.lease / 3:
                Job.objects.all().keep_stopping(held.run, self.lease)
                held.renewed_at = now

    def look(self, ids: Collection[UUID] | None = None) -> set[UUID]:
        """Notice losses without renewing: a read, where no wake-up tells of a cancel.

        Of all that runs, or of ``ids``; those that are still ours.
        """
        running = [h for h in self.running() if not h.lost and (ids is None or h.run.id in ids)]
        if not running:
            return set()
        ours: set[UUID] = Job.objects.all().still_held([held.run for held in running])
        for held in running:
            if held.run.id not in ours:
                self._lose(held)
        return ours

    def lanes(self) -> list[Claim]:
        """The claims of the lane jobs whose bodies run."""
        running = self.running()
        return [claim_of(h.run) for h in running if h.run.lane_token is not None and not h.lost]

    def _renew(self, due: Sequence[Held]) -> None:
        asked = time.monotonic()
        renewed, lost = Job.objects.all().renew([held.run for held in due], self.lease)
        for held in due:
            if held.run.id in renewed:
                held.renewed_at = asked
            elif held.run.id in lost:
                self._lose(held)

    def watch(self) -> None:
        """Judge by this process's own clock: leases that ran out, deadlines that passed.

        A run whose lease ran out is told to stop, but stays ours until the row says otherwise:
        after an outage of the database nobody else has it, and its outcome still counts.
        """
        now = time.monotonic()
        with self._lock:
            held_now = list(self._held.values())
        for held in held_now:
            if not (held.lost or held.expired) and now - held.renewed_at > self.lease:
                held.expired = True
                if held.started and not held.ended:
                    logger.warning("lease ran out: job %s %s", held.run.name, held.run.id)
                    held.stop()
            if not held.ended:
                held.stop_late_step()
            deadline = held.current.deadline if held.current is not None else None
            if deadline is None or held.ended or now < deadline:
                continue
            if not held.timed_out:
                held.timed_out = True
                logger.warning("job %s %s passed its timeout", held.run.name, held.run.id)
            held.stop()

    def _lose(self, held: Held) -> None:
        with self._lock:
            # A settled run gives its lease up; the answer on the wire is no loss then.
            if self._held.get(held.run.id) is not held or held.lost:
                return
            held.lost = True
        logger.warning("lease lost: job %s %s", held.run.name, held.run.id)
        held.stop()
