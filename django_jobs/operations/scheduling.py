"""What an operator asks of schedules: look, look ahead, pause, resume, trigger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import OuterRef, Subquery

from django_jobs import conf
from django_jobs.errors import ScheduleNotFound
from django_jobs.models import ScheduleDecision
from django_jobs.models.decision import decisions
from django_jobs.models.schedule import GONE, clock, schedules
from django_jobs.operations.firing import fire_now
from django_jobs.schedules import Timetable, timetable, timetables

MOST_AHEAD = 1000

Condition = Literal["active", "paused", "failing", "unseen", "elsewhere", "orphaned"]


@dataclass(frozen=True, slots=True)
class ScheduleStanding:
    """A schedule, as the code here and its row tell of it.

    ``condition``: ``"unseen"``: declared here, and no worker knows it yet; ``"elsewhere"``: not
    declared here, but workers of another deployment say that they know it; ``"orphaned"``: nobody
    does any more, and it is not due until somebody declares it again. ``ahead`` are its next
    occurrences, in its own time zone; none are known of one that is not declared here.
    """

    name: str
    job: str
    cadence: str
    condition: Condition
    ahead: Sequence[datetime] = ()
    watermark: datetime | None = None
    error: str = ""
    paused_by: str = ""
    pause_reason: str = ""
    last: ScheduleDecision | None = None


def standings(ahead: int = 1) -> list[ScheduleStanding]:
    """Every schedule that is declared here or has a row, by name, with its next occurrences."""
    alias, declared = conf.current().database, timetables()
    last = decisions(alias).filter(schedule=OuterRef("name")).order_by("-id").values("id")[:1]
    every: list[Any] = list(schedules(alias).clocked().annotate(last=Subquery(last)))
    rows = {row.name: row for row in every}
    now = clock(alias)
    ids = [row.last for row in every if row.last is not None]
    latest = {one.schedule: one for one in decisions(alias).filter(id__in=ids)}
    return [
        _standing(name, rows.get(name), latest.get(name), _ahead(declared.get(name), now, ahead))
        for name in sorted({*declared, *rows})
    ]


def _standing(
    name: str, row: Any, last: ScheduleDecision | None, ahead: Sequence[datetime]
) -> ScheduleStanding:
    if row is None:
        declared = timetables()[name]
        job, cadence = declared.definition.name, str(declared.cadence)
        return ScheduleStanding(name, job, cadence, "unseen", ahead)
    return ScheduleStanding(
        name=name,
        job=row.job,
        cadence=row.cadence,
        condition=condition(row),
        ahead=ahead,
        watermark=row.watermark,
        error=row.error,
        paused_by=row.paused_by,
        pause_reason=row.pause_reason,
        last=last,
    )


def condition(row: Any) -> Condition:
    """How the schedule of a row, which carries the database's clock, stands."""
    if timetable(row.name) is None:
        known = row.seen_at is not None and row.clock - row.seen_at < GONE
        return "elsewhere" if known else "orphaned"
    if row.paused_at is not None:
        return "paused"
    return "failing" if row.error else "active"


def _ahead(declared: Timetable | None, now: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    at = now
    if declared is None:
        return found
    for _ in range(min(count, MOST_AHEAD)):
        at = declared.cadence.after(at)
        found.append(at.astimezone(declared.cadence.zone))
    return found


def look_ahead(name: str, count: int = 5) -> list[datetime]:
    """The next ``count`` occurrences (1,000 at most) by the database's clock.

    In the schedule's own time zone; where they fall, and not ``jitter=``. Raises
    ``ScheduleNotFound`` for a schedule that this process does not declare.
    """
    declared = _declared(name)
    return _ahead(declared, clock(conf.current().database), count)


def pause_schedule(name: str, *, by: str = "", reason: str = "") -> bool:
    """Have the occurrences of a schedule skipped until it is resumed; whether it was active.

    What it has enqueued already goes on. Raises ``ScheduleNotFound``.
    """
    _known(name)
    return bool(schedules(conf.current().database).pause(name, by=by, reason=reason))


def resume_schedule(name: str) -> bool:
    """Have the occurrences of a schedule run again; whether it was paused.

    What fell due meanwhile was skipped and is not made good. Raises ``ScheduleNotFound``.
    """
    _known(name)
    return bool(schedules(conf.current().database).resume(name))


def trigger_schedule(name: str, *, by: str = "", reason: str = "") -> list[UUID]:
    """Enqueue a schedule's job now, out of turn; the ids of the jobs (one for each tenant).

    It runs even if the schedule is paused or an earlier job of it has not ended, and counts as
    such an earlier job for the occurrences after it. The watermark does not move. Raises
    ``ScheduleNotFound`` for a schedule that this process does not declare.
    """
    declared = _declared(name)
    told = f"by {by or 'somebody'}{': ' if reason else ''}{reason}"
    return fire_now(declared, _row(declared).clock, told)


def _declared(name: str) -> Timetable:
    declared = timetable(name)
    if declared is None:
        known = ", ".join(timetables()) or "none"
        raise ScheduleNotFound(f"This process declares no schedule {name!r}. Known: {known}.")
    return declared


def _row(declared: Timetable) -> Any:
    """The row of a schedule, with the clock; made now if no worker has made it yet."""
    rows = schedules(conf.current().database)
    row = rows.clocked().filter(name=declared.name).first()
    if row is None:
        rows.declare({declared.name: declared}, first=False)
        row = rows.clocked().get(name=declared.name)
    return row


def _known(name: str) -> None:
    declared = timetable(name)
    if declared is not None:
        _row(declared)
    elif not schedules(conf.current().database).filter(name=name).exists():
        raise ScheduleNotFound(f"There is no schedule {name!r}.")
