"""From an occurrence to a job: one transaction decides about a schedule and stages its jobs.

Locks: the schedule's row before anything else, and of other tables nothing but what is inserted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django_jobs import conf
from django_jobs.definitions import Request
from django_jobs.ids import new_token
from django_jobs.models import ScheduleDecision, picking
from django_jobs.models.decision import COALESCED, FIRED, QUEUED, SKIPPED, TRIGGERED, decisions
from django_jobs.models.schedule import schedules
from django_jobs.operations.enqueueing import stage_in
from django_jobs.schedules import Due, Passed, Timetable, due, stamp, tenant_text

QUEUE_LOOK = timedelta(seconds=1)
"""How often an occurrence that waits for an earlier one looks whether that has ended."""

Called = tuple[datetime, Any, Request]
"""An occurrence, for whom it is, and the call."""


def fire_due(row: Any, timetable: Timetable) -> int:
    """Decide about every occurrence of a schedule that is due; how many jobs it made.

    ``row`` carries the database's clock. Whoever finds that another worker was faster does
    nothing. Raises what the schedule's own code raises, before anything is written.
    """
    found = due(
        timetable.cadence, row.watermark, row.clock, timetable.missed, timetable.max_catch_up
    )
    asks = (found is not None or timetable.overlap == "queue_one") and row.paused_at is None
    tenants = timetable.tenants() if asks else []
    run = () if found is None else found.run
    called = [(at, who, timetable.request(at, who)) for at in run for who in tenants]
    alias = conf.current().database
    through = row.watermark if found is None else found.through
    with picking.own_transaction(alias):
        wake_at = timetable.cadence.after(max(through, row.clock))
        if not schedules(alias).advance(row, through, wake_at):
            return 0
        if row.paused_at is not None:
            _skip_paused(alias, row, found)
            return 0
        firing = _Firing(alias, timetable)
        made = firing.release_queued({tenant_text(who): who for who in tenants}) if asks else 0
        if found is not None and found.passed is not None:
            firing.pass_over(found.passed, found.run)
        made += firing.fire(called)
        if firing.waiting:
            schedules(alias).filter(name=row.name).update(
                wake_at=min(wake_at, row.clock + QUEUE_LOOK)
            )
    return made


def fire_now(timetable: Timetable, now: datetime, reason: str) -> list[UUID]:
    """Stage one occurrence out of turn, whatever else runs; the ids of its jobs."""
    alias = conf.current().database
    at = now.replace(microsecond=0)
    mark = f"#{new_token().hex}"
    called = [(at, who, timetable.request(at, who, mark=mark)) for who in timetable.tenants()]
    with picking.own_transaction(alias):
        return _Firing(alias, timetable).stage(called, TRIGGERED, reason)


def _skip_paused(alias: str, row: Any, found: Due | None) -> None:
    if found is None:
        return
    passed = found.passed
    count = len(found.run) + (passed.count if passed else 0)
    decisions(alias).create(
        schedule=row.name,
        occurrence=found.through,
        since=min(found.run[0], passed.first) if passed else found.run[0],
        occurrences=count,
        outcome=SKIPPED,
        reason=f"paused by {row.paused_by or 'somebody'}: {row.pause_reason}",
    )


class _Firing:
    """One schedule within the transaction that has locked its row."""

    def __init__(self, alias: str, timetable: Timetable) -> None:
        self._alias, self._timetable = alias, timetable
        self._decisions = decisions(alias)
        self._unended: dict[str, UUID] | None = None
        self.waiting: set[str] = set()
        """Tenants of whom an occurrence waits for an earlier one."""

    def unended(self) -> dict[str, UUID]:
        """By tenant a job that has not ended, those of this transaction included."""
        if self._unended is None:
            self._unended = self._decisions.unended(self._timetable.name)
        return self._unended

    def release_queued(self, tenants: Mapping[str, Any]) -> int:
        """Stage what waited for a job that has ended; ``tenants``: by the text of each."""
        made = 0
        for waiting in self._decisions.queued(self._timetable.name):
            tenant, row = waiting.tenant, self._decisions.filter(id=waiting.id)
            if tenant not in tenants:
                row.update(outcome=SKIPPED, reason="its tenant is gone")
            elif tenant in self.unended():
                self.waiting.add(tenant)
            else:
                assert waiting.occurrence is not None
                request = self._timetable.request(waiting.occurrence, tenants[tenant])
                (staged,) = stage_in(self._alias, [request])
                row.update(outcome=FIRED, job_id=staged.id, open=True)
                self.unended()[tenant] = staged.id
                made += 1
        return made

    def pass_over(self, passed: Passed, run: Sequence[datetime]) -> None:
        """Note occurrences that were missed and do not run."""
        timetable = self._timetable
        more = " or more" if passed.is_more else ""
        if timetable.missed == "once":
            outcome, why = COALESCED, f"into that of {stamp(run[0])}"
        elif timetable.missed == "all":
            outcome, why = SKIPPED, f"missed, and max_catch_up is {timetable.max_catch_up}"
        else:
            outcome, why = SKIPPED, f"missed; the latest, of {stamp(run[-1])}, stands for it"
        self._decisions.create(
            schedule=timetable.name,
            occurrence=passed.last,
            since=passed.first,
            occurrences=passed.count,
            outcome=outcome,
            reason=f"{why}{'; ' + str(passed.count) + more if more else ''}",
        )

    def fire(self, called: Sequence[Called]) -> int:
        """Stage each occurrence, or skip it or let it wait as ``overlap`` says."""
        if self._timetable.overlap in ("allow", "supersede"):
            return len(self.stage(called, FIRED))
        made = 0
        for one in called:
            tenant = tenant_text(one[1])
            earlier = self.unended().get(tenant)
            if earlier is None:
                (self.unended()[tenant],) = self.stage([one], FIRED)
                made += 1
            elif self._timetable.overlap == "queue_one" and tenant not in self.waiting:
                self.waiting.add(tenant)
                self._note(one, QUEUED, f"waits for job {earlier}", None)
            else:
                beside = "one more waits" if tenant in self.waiting else "overlap=skip"
                self._note(one, SKIPPED, f"job {earlier} has not ended; {beside}", None)
        return made

    def stage(self, called: Sequence[Called], outcome: str, reason: str = "") -> list[UUID]:
        """Stage calls with their decisions; the ids of the jobs."""
        if not called:
            return []
        ids = [one.id for one in stage_in(self._alias, [request for _, _, request in called])]
        self._decisions.bulk_create(
            [
                self._decision(one, outcome, reason, job_id)
                for one, job_id in zip(called, ids, strict=True)
            ],
            batch_size=500,
        )
        return ids

    def _note(self, one: Called, outcome: str, reason: str, job_id: UUID | None) -> None:
        self._decision(one, outcome, reason, job_id).save(using=self._alias)

    def _decision(
        self, one: Called, outcome: str, reason: str, job_id: UUID | None
    ) -> ScheduleDecision:
        occurrence, who, _ = one
        return ScheduleDecision(
            schedule=self._timetable.name,
            tenant=tenant_text(who),
            occurrence=occurrence,
            outcome=outcome,
            reason=reason,
            job_id=job_id,
            open=job_id is not None,
        )
