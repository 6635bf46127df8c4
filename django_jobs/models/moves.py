"""The moves that a run makes: claim, settle, renew. Each is guarded and reports its rows."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from django.db import models, transaction
from django.db.models import F
from django.db.models.functions import Greatest, Now

from django_jobs import states
from django_jobs.ids import new_token
from django_jobs.models import picking
from django_jobs.models.attempt import Attempt
from django_jobs.models.run import Run
from django_jobs.outcomes import Failure
from django_jobs.states import Move, State

if TYPE_CHECKING:
    from django_jobs.models.job import Job  # noqa: F401 - named in a base class

_SETTLE_TYPES = {"id": "uuid", "lease": "uuid", "result": "text"}
_LEASE_TYPES = {"id": "uuid", "lease": "uuid"}

Floor = tuple[int, object]
"""Priority and due time of the first row of a claim: where the next one may begin."""

NO_FLOOR: Floor = (-32768, None)


ENDED_SUPERSEDED: dict[str, Any] = {
    "lease": None,
    "lease_expires_at": None,
    "reason": "superseded",
    "finished_at": Now(),
}


class Moves(models.QuerySet["Job"]):
    """What every move stands on. Each returns what it changed; to ignore that is a bug."""

    def _move(self, move: Move, target: State, **values: Any) -> int:
        """The guarded UPDATE under every move: only from the move's sources."""
        assert target in move.targets, (move.name, target)
        return self.filter(state__in=move.sources).update(state=target, **values)

    def _record(self, job_id: UUID, number: int, worker: str, failure: Failure, age: float) -> None:
        Attempt.objects.using(self.db).create(
            job_id=job_id,
            number=number,
            worker=worker,
            error_class=failure.error_class,
            message=failure.message,
            traceback=failure.traceback,
            started_at=Now() - timedelta(seconds=age),
        )


class RunMoves(Moves):
    """CLAIM and what the holder of a lease may do."""

    def _held(self, run: Run) -> Self:
        return self.filter(id=run.id, lease=run.lease)

    def claim(
        self,
        queue: str,
        *,
        room: int,
        lease: float,
        worker: str,
        floor: Floor = NO_FLOOR,
        suspects: bool = False,
        names: Collection[str] | None = None,
        named: bool = True,
    ) -> list[Run]:
        """CLAIM up to ``room`` due rows of ``queue`` for ``lease`` seconds, in claim order.

        ``suspects`` takes those, and only those, whose workers were lost twice. With ``names``
        only jobs of these names are taken, or, unless ``named``, only others; all that stand
        before them are stepped over.
        """
        token = new_token()
        priority, run_at = floor
        earliest = "-infinity" if picking.is_postgres(self.db) else ""
        parameters: dict[str, Any] = {
            "queue": queue,
            "room": room,
            "lease": lease,
            "worker": worker,
            "token": token,
            "floor_priority": priority,
            "floor_run_at": earliest if run_at is None else run_at,
        }
        eligible = "crashes >= 2" if suspects else "crashes < 2"
        if names is not None:
            parameters["names"] = picking.texts(self.db, names)
            among = picking.among(self.db, "name", "names")
            eligible += f" AND {among}" if named else f" AND NOT {among}"
        claimed = picking.run(self.db, "claim", parameters, eligible=eligible)
        runs = [Run.of(row, token, worker) for row in claimed]
        if not picking.is_postgres(self.db):  # Its UPDATE cannot say in which order it returns.
            runs.sort(key=lambda run: (run.priority, run.run_at, run.id))
        return runs

    def succeed(self, settled: Sequence[tuple[Run, str | None]]) -> set[UUID]:
        """SUCCEED: the ids whose result is on the row, now or by an earlier try of this call."""
        values = [{"id": run.id, "lease": run.lease, "result": result} for run, result in settled]
        source, parameters = picking.rows(self.db, _SETTLE_TYPES, values)
        rows = picking.run(self.db, "succeed", parameters, called=source)
        landed = {picking.to_uuid(row[0]) for row in rows}
        missing = [run for run, _ in settled if run.id not in landed]
        if missing:
            landed |= self._landed(missing, State.DONE)
        return landed

    def _landed(self, runs: Sequence[Run], target: State) -> set[UUID]:
        """Which of ``runs`` carry our token in ``target``: a settle whose reply was lost."""
        leases = {run.id: run.lease for run in runs}
        rows = self.filter(id__in=leases, state=target).values_list("id", "lease")
        return {id_ for id_, lease in rows if lease == leases[id_]}

    def _settle(
        self, run: Run, move: Move, target: State, failure: Failure | None, **values: Any
    ) -> bool:
        """A fenced move with its Attempt row; whether it landed, now or at an earlier try."""
        with transaction.atomic(using=self.db):
            held = self._held(run)
            again = target not in states.FINISHED
            if again:
                held = held.filter(superseded_by=None)
            moved = held._move(move, target, lease_expires_at=None, **values)
            yielded = self._give_way(run) if again and not moved else 0
            if (moved or yielded) and failure is not None:
                began = run.claimed_at if run.began_at is None else run.began_at
                age = time.monotonic() - began
                self._record(run.id, run.attempt, run.worker, failure, age)
        return bool(moved) or bool(self._landed([run], target))

    def _give_way(self, run: Run) -> int:
        """End a run that a newer one of its lane had spared, instead of letting it run again."""
        spared = self._held(run).filter(superseded_by__isnull=False)
        return spared._move(states.SUPERSEDE, State.CANCELLED, **ENDED_SUPERSEDED)

    def retry(self, run: Run, failure: Failure, delay: float) -> bool:
        """RETRY after ``delay`` seconds, at once when it is 0. The attempt stays counted."""
        target = State.DELAYED if delay > 0 else State.READY
        return self._settle(
            run, states.RETRY, target, failure, run_at=Now() + timedelta(seconds=delay)
        )

    def suspend(self, run: Run, delay: float, reason: str) -> bool:
        """SUSPEND for ``delay`` seconds; the attempt is given back."""
        return self._settle(
            run,
            states.SUSPEND,
            State.SUSPENDED,
            None,
            attempt=Greatest(F("attempt") - 1, 0),
            run_at=Now() + timedelta(seconds=delay),
            reason=reason,
        )

    def bury(self, run: Run, failure: Failure, reason: str, *, keep: bool) -> bool:
        """BURY: give the job up, as a dead letter or, unless ``keep``, as ``failed``."""
        target = State.DEAD if keep else State.FAILED
        return self._settle(run, states.BURY, target, failure, reason=reason, finished_at=Now())

    def shed(self, runs: Sequence[Run]) -> int:
        """SHED: hand runs back as they were claimed; how many were still ours."""
        handed = 0
        for run in sorted(runs, key=lambda run: run.id):
            handed += (
                self._held(run)
                .filter(superseded_by=None)
                ._move(
                    states.SHED,
                    State.READY,
                    attempt=Greatest(F("attempt") - 1, 0),
                    lease_expires_at=None,
                    worker="",
                )
            )
            if run.lane is not None:
                self._give_way(run)
        return handed

    def still_held(self, runs: Sequence[Run]) -> set[UUID]:
        """The ids of ``runs`` whose rows still carry our token: a plain read."""
        return self._landed(runs, State.RUNNING)

    def fence(self, run: Run, lease: float, progress: str | None = None) -> bool:
        """The last statement of a transaction of the run's own: whether the job is still its.

        Extends the lease to at least ``lease`` seconds from now. ``progress`` is JSON text.
        """
        values = {} if progress is None else {"progress": json.loads(progress)}
        until = Greatest(F("lease_expires_at"), Now() + timedelta(seconds=lease))
        held = self._held(run).filter(state=State.RUNNING)
        return bool(held.update(lease_expires_at=until, **values))

    def forget_failures(self, run: Run) -> bool:
        """Count this attempt as the first and no worker as lost: the run has stored progress."""
        held = self._held(run).filter(state=State.RUNNING)
        return bool(held.update(attempt=1, crashes=0))

    def renew(self, runs: Sequence[Run], lease: float) -> tuple[set[UUID], set[UUID]]:
        """Extend leases for ``lease`` seconds; the ids renewed, and those lost for certain.

        An id in neither is ours but locked by somebody at this moment.
        """
        values = [{"id": run.id, "lease": run.lease} for run in runs]
        source, parameters = picking.rows(self.db, _LEASE_TYPES, values)
        rows = picking.run(self.db, "renew", {**parameters, "lease": lease}, called=source)
        renewed = {picking.to_uuid(row[0]) for row in rows}
        missing = [run for run in runs if run.id not in renewed]
        lost = {run.id for run in missing} - self.still_held(missing) if missing else set()
        return renewed, lost
