"""The waker: due jobs become ready, jobs of lost workers too."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from django_jobs import conf
from django_jobs.models import Event, Job, Lapsed, Waits, picking
from django_jobs.models.waking import Hint, notify
from django_jobs.signals import job_lapsed
from django_jobs.states import State

logger = logging.getLogger("django_jobs.waker")

BATCH = 1000
LAPSE_BATCH = 500


def wake() -> int:
    """Make every due job ready; how many there were."""
    woken = 0
    while True:
        batch = picking.retrying(lambda: Job.objects.all().wake(limit=BATCH))
        woken += len(batch)
        if len(batch) < BATCH:
            break
    if woken:
        notify(conf.current().database, Hint.READY)
    return woken


def answer(waits: Waits | None = None) -> int:
    """Match events to waits, and wake the runs that go on; how many moved or were looked at.

    Two steps on purpose: an answer stays on its step until the run takes it, so that a run that
    suspends at this very moment is found by the next look.
    """
    events, jobs = Event.objects.all(), Job.objects.all()
    waits = events.waits() if waits is None else waits
    moved, answered = 0, waits.answers
    while waits.events:
        looked_at, found = picking.retrying(lambda: events.match(BATCH))
        moved, answered = moved + looked_at, answered or found > 0
        if looked_at < BATCH:
            break
    if waits.parents:
        parents = picking.retrying(lambda: events.answer_parents(BATCH))
        moved, answered = moved + len(parents), answered or bool(parents)
    woken = picking.retrying(lambda: jobs.wake_answered(limit=BATCH)) if answered else []
    if woken:
        notify(conf.current().database, Hint.READY)
    return moved + len(woken)


def lapse(worker: str = "", spared: Collection[UUID] = ()) -> list[Lapsed]:
    """Take jobs back whose lease ran out, or, with ``worker``, all that this lost worker held.

    ``spared`` are known to run.
    """
    settings = conf.current()
    lapsed: list[Lapsed] = []
    while True:
        batch = picking.retrying(
            lambda: Job.objects.all().lapse(
                limit=LAPSE_BATCH,
                max_crashes=settings.max_crashes,
                worker=worker,
                spared=spared,
            )
        )
        lapsed += batch
        if len(batch) < LAPSE_BATCH:
            break
    for one in lapsed:
        logger.warning("worker lost: job %s %s is %s", one.name, one.job_id, one.state.value)
        job_lapsed.send_robust(sender=one.name, job_id=one.job_id, state=one.state)
    if any(one.state is State.READY for one in lapsed):
        notify(settings.database, Hint.READY)
    return lapsed


class Waker:
    """``wake`` and ``lapse`` as a worker process does them.

    ``lease`` is how many seconds the claims of such processes hold; ``spared`` tells which jobs
    this one runs.
    """

    def __init__(self, lease: float, spared: Callable[[], Collection[UUID]] = lambda: ()) -> None:
        self._lease, self._spared = lease, spared
        self._lost_workers: list[str] = []
        self.parents_wait = False
        """Whether runs wait for other jobs: then the end of each is worth a look."""
        self._seen_since: float | None = None

    def tick(self) -> int:
        """Wake what is due and lapse what may be lapsed; how many jobs moved.

        After an outage every lease has run out although the bodies still run. Nothing lapses
        before this process has seen the database for one whole lease, so that their own
        workers renew them first.
        """
        now = time.monotonic()
        if self._seen_since is None:
            self._seen_since = now
        waits = Event.objects.all().waits()
        self.parents_wait = waits.parents
        moved = wake() + answer(waits)
        while self._lost_workers:
            moved += len(lapse(self._lost_workers[0]))
            self._lost_workers.pop(0)
        if now - self._seen_since >= self._lease:
            moved += len(lapse(spared=self._spared()))
        return moved

    def lost(self, workers: Sequence[str]) -> None:
        """The processes of these workers have ended: their jobs may be taken back at once."""
        self._lost_workers += workers

    def outage(self) -> None:
        """The database was not reachable; the time to wait before a lapse starts anew."""
        self._seen_since = None
