"""The settler: outcomes are stored, successes in groups."""

from __future__ import annotations

import logging
import queue
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

from django.db import DatabaseError

from django_jobs.errors import ResultError
from django_jobs.failures import failure_of, gist
from django_jobs.lanes.advice import Claim
from django_jobs.leases import Held, LeaseBook, claim_of
from django_jobs.models import Job, picking
from django_jobs.outcomes import (
    Buried,
    Lost,
    Outcome,
    Parked,
    Retried,
    Shed,
    Stopped,
    Succeeded,
    Superseded,
)
from django_jobs.signals import job_ended

logger = logging.getLogger("django_jobs.settler")

GROUP = 500
REFUSED = "the database refused to store how it ended"

Settled = tuple[Held, Outcome]


class Settler:
    """Takes outcomes from any thread, stores them from one."""

    def __init__(self, leases: LeaseBook, on_delayed: Callable[[], None] = lambda: None) -> None:
        self.leases, self._on_delayed = leases, on_delayed
        self.finished = 0
        """Runs settled since the process began."""
        self.finished_coroutines = 0
        """Those of them whose bodies are async."""
        self._incoming: queue.SimpleQueue[Settled | None] = queue.SimpleQueue()
        self._reporting = False
        self.left_lanes: deque[Claim] = deque(maxlen=10_000)
        """Claims of lane jobs that ended for good, until somebody says so to the other workers."""
        self._unstored: dict[UUID, Settled] = {}
        """By lease-holding job id, in the order of arrival."""

    def put(self, held: Held, outcome: Outcome) -> None:
        """Hand over how a run ended."""
        self._incoming.put((held, outcome))

    def nudge(self) -> None:
        """Make a waiting ``tick`` return."""
        self._incoming.put(None)

    def idle(self) -> bool:
        """Whether everything that was handed over is stored, and reported."""
        return self._incoming.empty() and not self._unstored and not self._reporting

    def tick(self) -> int:
        """Wait for outcomes and store what is there; how many. The rest stays for the next tick.

        What arrives while one group is on its way is the next group: the busier, the larger.
        """
        self._gather()
        pairs = list(self._unstored.values())
        successes = [(held, out) for held, out in pairs if isinstance(out, Succeeded)]
        for start in range(0, len(successes), GROUP):
            self._store_successes(successes[start : start + GROUP])
        self._hand_back([held for held, _ in pairs if held.handed_back])
        for held, outcome in pairs:
            if not (isinstance(outcome, Succeeded) or held.handed_back):
                self._report([(held, self._stored_or_refused(held, outcome))])
        return len(pairs)

    def _gather(self) -> None:
        block = not self._unstored
        while len(self._unstored) < GROUP:
            try:
                pair = self._incoming.get(block=block, timeout=1.0 if block else None)
            except queue.Empty:
                return
            if pair is None:
                return
            self._unstored[pair[0].run.id] = pair
            block = False

    def _store_successes(self, group: Sequence[tuple[Held, Succeeded]]) -> None:
        landed = {held.run.id for held, outcome in group if outcome.stored}
        values = [(held.run, outcome.result) for held, outcome in group if not outcome.stored]
        try:
            if values:
                landed |= picking.retrying(lambda: Job.objects.all().succeed(values))
        except DatabaseError as error:
            if picking.is_outage(error):
                raise
            self._find_refused(group, error)
            return
        self._report(
            [
                (held, outcome if held.run.id in landed else self._not_ours(held))
                for held, outcome in group
            ]
        )

    def _find_refused(self, group: Sequence[tuple[Held, Succeeded]], error: DatabaseError) -> None:
        """The database refused a group: one row of it must not keep the others from their end."""
        if len(group) > 1:
            for pair in group:
                self._store_successes([pair])
            return
        if picking.was_canceled(error):
            raise error  # It waited too long for a lock, which says nothing of the row.
        [(held, _)] = group
        self._report([(held, self._refused(held, error))])

    def _stored_or_refused(self, held: Held, outcome: Outcome) -> Outcome:
        try:
            return self._store(held, outcome)
        except DatabaseError as error:
            if picking.is_outage(error) or picking.was_canceled(error):
                raise
            return self._refused(held, error)

    def _refused(self, held: Held, error: DatabaseError) -> Outcome:
        """The database answered and will not have this outcome: the job is dead, and says why.

        Its body has run, and would end the same way again. When even that is refused the row is
        let go: its lease runs out, which ends after ``MAX_CRASHES`` times.
        """
        run = held.run
        failure = failure_of(ResultError(f"The database refused the outcome: {gist(error)}"))
        logger.error("job %s %s: %s", run.name, run.id, failure.message)
        try:
            landed = picking.retrying(
                lambda: Job.objects.all().bury(run, failure, REFUSED, keep=True)
            )
        except DatabaseError as worse:
            if picking.is_outage(worse) or picking.was_canceled(worse):
                raise
            logger.error("job %s %s is left to its lease: %s", run.name, run.id, gist(worse))
            return Lost()
        return Buried(failure, REFUSED) if landed else self._not_ours(held)

    def _hand_back(self, unstarted: Sequence[Held]) -> None:
        """Shed runs whose bodies never started, hundreds maybe, in one transaction."""
        runs, jobs = [held.run for held in unstarted], Job.objects.all()

        def shed() -> int:
            with picking.own_transaction(jobs.db):
                handed: int = jobs.shed(runs)
                return handed

        if runs and picking.retrying(shed) < len(runs):
            for run in runs:  # One that was cancelled meanwhile is no longer stopping.
                jobs.body_ended(run.id, run.worker)
        self._report([(held, Shed("not started")) for held in unstarted])

    def _store(self, held: Held, outcome: Outcome) -> Outcome:
        """Store one outcome that is no success; what it turned out to be."""
        run, jobs = held.run, Job.objects.all()
        match outcome:
            case Retried(failure, delay):
                landed = picking.retrying(lambda: jobs.retry(run, failure, delay))
            case Buried(failure, reason, keep):
                landed = picking.retrying(lambda: jobs.bury(run, failure, reason, keep=keep))
            case Parked(delay, reason):
                landed = picking.retrying(lambda: jobs.suspend(run, delay, reason))
            case Shed():
                landed = bool(picking.retrying(lambda: jobs.shed([run])))
            case _:
                landed = False
        if landed and isinstance(outcome, Retried | Parked):
            self._on_delayed()
        return outcome if landed else self._not_ours(held)

    def _not_ours(self, held: Held) -> Outcome:
        """The row does not carry our token: cancelled (then its body has ended now), or lost."""
        run, jobs = held.run, Job.objects.all()
        if not jobs.body_ended(run.id, run.worker):
            return Lost()
        by = None if run.lane is None else jobs.superseded_by(run)
        return Stopped() if by is None else Superseded(by)

    def _report(self, stored: Sequence[Settled]) -> None:
        """Say how runs ended, now that their outcomes are stored."""
        # Counted before they leave the book: a process that may run so many looks at the sum.
        self.finished += sum(not held.handed_back for held, _ in stored)
        self.finished_coroutines += sum(
            held.is_coroutine and not held.handed_back for held, _ in stored
        )
        self.leases.remove(held for held, _ in stored)
        self._reporting = True
        for held, outcome in stored:
            run = held.run
            del self._unstored[run.id]
            held.outcome = outcome
            ended = not isinstance(outcome, Retried | Parked | Shed | Lost)
            if ended and run.lane_token is not None:
                self.left_lanes.append(claim_of(run))
            if not held.handed_back:
                job_ended.send_robust(
                    sender=run.name, run=run, outcome=outcome, seconds=held.seconds
                )
        self._reporting = False
