"""The moves that others make on a job: lapse, wake, cancel, requeue; and the pruning of history."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest, Least, Now

from django_jobs import states
from django_jobs.errors import JobNotFound, LaneMovedOn, NotCancellable, NotRetryable
from django_jobs.models import picking, superseding
from django_jobs.models.attempt import Attempt
from django_jobs.models.lane import Lane, LaneKey, lock_and_draw
from django_jobs.models.moves import ENDED_SUPERSEDED, Moves
from django_jobs.models.publishing import Published
from django_jobs.models.run import Run
from django_jobs.models.step import Step
from django_jobs.models.superseding import Announced
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

    def lapse(
        self, *, limit: int, max_crashes: int, worker: str = "", spared: Collection[UUID] = ()
    ) -> list[Lapsed]:
        """LAPSE rows whose lease ran out, but those ``spared``.

        With ``worker``, the rows of that worker whatever their leases say: its process is known
        to have ended.
        """
        expired = Q(worker=worker) if worker else Q(lease_expires_at__lt=Now())
        with picking.own_transaction(self.db):
            lost = list(
                self.filter(expired, state=State.RUNNING)
                .exclude(id__in=spared)
                .order_by("lease_expires_at")
                .select_for_update(skip_locked=True)
                .only("id", "name", "attempt", "crashes", "worker", "lease", "superseded_by")[
                    :limit
                ]
            )
            lapsed = [self._lapse_one(job, max_crashes) for job in lost]
        return [one for one in lapsed if one is not None]

    def _lapse_one(self, job: Job, max_crashes: int) -> Lapsed | None:
        if job.superseded_by is not None:
            return self._lapse_superseded(job)
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

    def _lapse_superseded(self, job: Job) -> Lapsed | None:
        """A run that a newer one of its lane had spared: it does not run again."""
        spared = self.filter(id=job.id, lease=job.lease)
        if not spared._move(states.SUPERSEDE, State.CANCELLED, worker="", **ENDED_SUPERSEDED):
            return None
        self._record(job.id, job.attempt, job.worker, WORKER_LOST, 0)
        return Lapsed(job.id, job.name, State.CANCELLED, job.crashes)

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

    def superseded_by(self, run: Run) -> UUID | None:
        """The newer job of its lane that ended ``run``, if one did."""
        ended = self.filter(id=run.id, state=State.CANCELLED, lane_token=run.lane_token)
        by: UUID | None = ended.values_list("superseded_by", flat=True).first()
        return by

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
        as_newest: bool = False,
        from_step: str | None = None,
        by: str = "",
        reason: str = "",
    ) -> Published:
        """REQUEUE with a full new set of attempts; its history stays. What it superseded.

        ``by`` and ``reason`` are stored. ``force`` takes ``cancelled`` and ``done`` jobs too. In a
        lane this is a publish: with ``as_newest`` the job becomes its newest, else it must be
        that. ``from_step`` forgets that step and the later ones. Raises ``JobNotFound``,
        ``NotRetryable`` and ``LaneMovedOn``.
        """
        with picking.own_transaction(self.db):
            key = self._lane_of(job_id)
            tokens = lock_and_draw(self.db, [key] if key else [])
            job = self._locked(job_id, tenant)
            _require_requeueable(job, force)
            values = {**_AS_NEW, "retried_by": by, "retry_reason": reason}
            if key is not None:
                _require_newest(self.db, job, key, as_newest)
                values["lane_token"] = tokens[0]
            if from_step is not None:
                self._forget(job, from_step)
            self._requeue(job, values)
            if key is None:
                return Published()
            done = Published(announced=[Announced(key, job_id, tokens[0], 0.0)])
            done.superseded = superseding.supersede(self.db, {job_id: job.name})
            superseding.note_heads(self.db, done.announced, done.superseded)
            return done

    def _lane_of(self, job_id: UUID) -> LaneKey | None:
        lanes = self.filter(id=job_id, lane__isnull=False).values_list("name", "tenant", "lane")
        row = lanes.first()
        return None if row is None else LaneKey(*row)

    def _requeue(self, job: Job, values: Mapping[str, Any]) -> None:
        fresh = Q(worker="") | Q(lease_expires_at=None) | Q(lease_expires_at__lt=Now())
        stopped = ~Q(state=State.CANCELLED) | fresh
        try:
            with transaction.atomic(using=self.db):
                moved = self.filter(stopped, id=job.id)._move(states.REQUEUE, State.READY, **values)
        except IntegrityError as error:
            raise NotRetryable(
                f"Job {job.id} cannot run again: another live job {job.name!r} holds its "
                f"idempotency key {job.idempotency_key!r}. Wait for it or cancel it."
            ) from error
        if not moved:
            raise NotRetryable(
                f"Job {job.id} is still stopping; try again when its body has ended."
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


_SHOWN = ("id", "run_id", "state", "name", "idempotency_key", "lane_token")

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


def _require_newest(alias: str, job: Job, key: LaneKey, as_newest: bool) -> None:
    """The caller holds the lane's stripe."""
    head = Lane.objects.using(alias).filter(**key._asdict()).first()
    moved_on = head is not None and head.last_token > (job.lane_token or 0)
    if head is not None and moved_on and not as_newest:
        raise LaneMovedOn(job.id, head.last_job)


def _require_requeueable(job: Job, force: bool) -> None:
    state = job.known_state
    if state in states.LIVE:
        raise NotRetryable(f"Job {job.id} is {state.value}: it is live already.")
    if state not in states.REQUEUED_UNASKED and not force:
        raise NotRetryable(
            f"Job {job.id} is {state.value}. Pass force=True to run it again all the same."
        )
