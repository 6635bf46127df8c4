"""The moves that others make on a job: lapse, wake, cancel, requeue; and the pruning of history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest, Least, Now

from django_jobs import states
from django_jobs.errors import JobNotFound, NotCancellable, NotRetryable
from django_jobs.models import picking
from django_jobs.models.attempt import Attempt
from django_jobs.models.moves import Moves
from django_jobs.models.run import Run
from django_jobs.models.step import Step
from django_jobs.outcomes import Failure
from django_jobs.states import State

if TYPE_CHECKING:
    from django_jobs.models.job import Job

WORKER_LOST = Failure("django_jobs.errors.LeaseLost", "The worker was lost.", "")


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A job whose worker was lost, and what became of it."""

    job_id: UUID
    name: str
    state: State
    crashes: int


class RescueMoves(Moves):
    """What wakers, janitors and operators do to jobs that they do not hold."""

    def wake(self, *, limit: int) -> list[str]:
        """WAKE up to ``limit`` due rows, the most urgent first; the queue of each."""
        return [row[0] for row in picking.run(self.db, "wake", {"limit": limit})]

    def wake_answered(self, *, limit: int) -> list[str]:
        """WAKE up to ``limit`` suspended rows whose waits are answered; the queue of each."""
        with picking.own_transaction(self.db):
            woken = picking.run(self.db, "wake_answered", {"limit": limit})
            # Once for each answer: a run that does not take it must not be woken for ever.
            ids = [picking.to_uuid(row[1]) for row in woken]
            told = Step.objects.using(self.db).filter(
                job_id__in=ids, status=picking.constant("answered")
            )
            told.update(status="woken")
        return [row[0] for row in woken]

    def lapse(self, *, limit: int, max_crashes: int, worker: str = "") -> list[Lapsed]:
        """LAPSE rows whose lease ran out.

        With ``worker``, the rows of that worker whatever their leases say: its process is known
        to have ended.
        """
        expired = Q(worker=worker) if worker else Q(lease_expires_at__lt=Now())
        with picking.own_transaction(self.db):
            lost = list(
                self.filter(expired, state=State.RUNNING)
                .order_by("lease_expires_at")
                .select_for_update(skip_locked=True)
                .only("id", "name", "attempt", "crashes", "worker", "lease")[:limit]
            )
            lapsed = [self._lapse_one(job, max_crashes) for job in lost]
        return [one for one in lapsed if one is not None]

    def _lapse_one(self, job: Job, max_crashes: int) -> Lapsed | None:
        crashes = job.crashes + 1
        dead = crashes >= max_crashes
        values: dict[str, Any] = {"finished_at": Now()} if dead else {"worker": ""}
        target = State.DEAD if dead else State.READY
        moved = self.filter(id=job.id, lease=job.lease)._move(
            states.LAPSE,
            target,
            crashes=crashes,
            attempt=Greatest(F("attempt") - 1, 0),
            lease=None,
            lease_expires_at=None,
            reason=f"worker lost {crashes} times" if dead else "",
            **values,
        )
        if not moved:
            return None
        self._record(job.id, job.attempt, job.worker, WORKER_LOST, 0)
        return Lapsed(job.id, job.name, target, crashes)

    def _locked(self, job_id: UUID, tenant: str | None) -> Job:
        """The job that an operator names, locked; raises ``JobNotFound``, as for a stranger's."""
        rows = self.filter(id=job_id) if tenant is None else self.filter(id=job_id, tenant=tenant)
        job = rows.select_for_update().only(*_SHOWN).first()
        if job is None:
            raise JobNotFound(f"There is no job {job_id}{_of(tenant)}.")
        return job

    def cancel(self, job_id: UUID, *, tenant: str | None, by: str, reason: str) -> State:
        """CANCEL; the state the job was in. Its body, if one runs, learns at its next heartbeat.

        Raises ``JobNotFound`` (also for another tenant's job) and ``NotCancellable``.
        """
        with picking.own_transaction(self.db):
            was: State = self._locked(job_id, tenant).known_state
            moved = self.filter(id=job_id)._move(
                states.CANCEL,
                State.CANCELLED,
                lease=None,
                blocked=False,
                cancelled_by=by,
                reason=reason,
                finished_at=Now(),
            )
        if not moved:
            raise NotCancellable(
                f"Job {job_id} is {was.value} already; only live jobs can be cancelled."
            )
        return was

    def body_ended(self, job_id: UUID, worker: str) -> int:
        """Note that the body of a cancelled job has ended: it no longer counts as stopping."""
        stopping = self.filter(id=job_id, worker=worker, state=State.CANCELLED)
        return stopping.update(worker="", lease_expires_at=None)

    def keep_stopping(self, run: Run, lease: float) -> int:
        """Note that the body of a cancelled job has not ended yet, for ``lease`` seconds."""
        stopping = self.filter(id=run.id, worker=run.worker, state=State.CANCELLED)
        return stopping.update(lease_expires_at=Now() + timedelta(seconds=lease))

    def requeue(
        self,
        job_id: UUID,
        *,
        tenant: str | None = None,
        force: bool = False,
        from_step: str | None = None,
    ) -> None:
        """REQUEUE with a full new set of attempts; its history stays.

        ``force`` takes ``cancelled`` and ``done`` jobs too; ``from_step`` forgets that step and
        the later ones. Raises ``JobNotFound`` and ``NotRetryable``.
        """
        with picking.own_transaction(self.db):
            fresh = Q(worker="") | Q(lease_expires_at=None) | Q(lease_expires_at__lt=Now())
            stopped = ~Q(state=State.CANCELLED) | fresh
            job = self._locked(job_id, tenant)
            _require_requeueable(job, force)
            if from_step is not None:
                self._forget(job, from_step)
            try:
                with transaction.atomic(using=self.db):
                    moved = self.filter(stopped, id=job_id)._move(
                        states.REQUEUE, State.READY, **_AS_NEW
                    )
            except IntegrityError as error:
                raise NotRetryable(
                    f"Job {job_id} cannot run again: another live job {job.name!r} holds its "
                    f"idempotency key {job.idempotency_key!r}. Wait for it or cancel it."
                ) from error
            if not moved:
                raise NotRetryable(
                    f"Job {job_id} is still stopping; try again when its body has ended."
                )

    def _forget(self, job: Job, from_step: str) -> None:
        steps = Step.objects.using(self.db).filter(run_id=job.run_id)
        positions = dict(steps.order_by("position").values_list("name", "position"))
        if from_step not in positions:
            raise NotRetryable(
                f"Job {job.id} has no stored step {from_step!r}. Those of its run are: "
                f"{', '.join(map(repr, positions)) or 'none'}."
            )
        steps.filter(position__gte=positions[from_step]).delete()

    def prune(self, state: State, *, age: float, limit: int) -> int:
        """Delete up to ``limit`` jobs that ended in ``state`` more than ``age`` seconds ago."""
        assert state in states.FINISHED
        # The condition of the index on history, in its own words.
        history = self.filter(state__in=[picking.constant(known) for known in states.FINISHED])
        old = history.filter(state=state, finished_at__lt=Now() - timedelta(seconds=age))
        with picking.own_transaction(self.db):
            rows = list(
                old.order_by("finished_at")
                .select_for_update(skip_locked=True)
                .values_list("id", "run_id")[:limit]
            )
            ids: Sequence[UUID] = [id_ for id_, _ in rows]
            Step.objects.using(self.db).filter(run_id__in=[run_id for _, run_id in rows]).delete()
            Attempt.objects.using(self.db).filter(job_id__in=ids).delete()
            deleted, _ = self.filter(id__in=ids, state=state).delete()
        return deleted


_SHOWN = ("id", "run_id", "state", "name", "idempotency_key")

_AS_NEW: dict[str, Any] = {
    "attempt": 0,
    "crashes": 0,
    "lease": None,
    "lease_expires_at": None,
    "worker": "",
    "not_before": None,
    "cancelled_by": "",
    "superseded_by": None,
    "reason": "",
    "result": None,
    "progress": None,
    "run_at": Least(F("run_at"), Now()),
    "started_at": None,
    "finished_at": None,
}


def _of(tenant: str | None) -> str:
    return "" if tenant is None else f" of tenant {tenant!r}"


def _require_requeueable(job: Job, force: bool) -> None:
    state = job.known_state
    if state in states.LIVE:
        raise NotRetryable(f"Job {job.id} is {state.value}: it is live already.")
    if state not in states.REQUEUED_UNASKED and not force:
        raise NotRetryable(
            f"Job {job.id} is {state.value}. Pass force=True to run it again all the same."
        )
