"""Steps that wait for jobs, and races: the first of several waits decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from django_jobs.durations import LONGEST
from django_jobs.errors import NoCurrentJob, StepRefused
from django_jobs.steps.journal import Journal
from django_jobs.steps.memo import Kind, Memo, Status
from django_jobs.steps.running import in_thread, journal_here
from django_jobs.steps.waiting import Duration, EventWait, length_of, read, text_of

STAGED_POLL = 1.0
"""Seconds after which a child that is not published yet is looked at again."""


class JobEnd(msgspec.Struct, frozen=True):
    """How a job has ended. ``id`` is the job that stood for the id that was waited for.

    ``state`` is ``done``, ``failed``, ``dead``, ``cancelled``, or ``pruned`` for one whose history
    is gone; for an enqueue that never became a job the outcome of its entry.
    """

    id: UUID
    state: str
    result: Any = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """A branch of ``first``: an event, as for ``wait_for_event``."""

    event: str
    match: object = None
    type: Any = Any


@dataclass(frozen=True, slots=True)
class Timer:
    """A branch of ``first``: a time in seconds or as ``timedelta``."""

    duration: Duration


@dataclass(frozen=True, slots=True)
class JobEnds:
    """A branch of ``first``: the end of a job, by what ``enqueue`` returned or by its id."""

    job: Any


Branch = Event | Timer | JobEnds


@dataclass(frozen=True, slots=True)
class Winner:
    """The branch that came first: its name, and the payload, the ``JobEnd`` or ``None``."""

    name: str
    value: Any = None


def wait_for_jobs(name: str, jobs: Iterable[Any], /) -> list[JobEnd]:
    """How these jobs ended, in their order, when all of them have. The worker is free meanwhile.

    ``jobs``: what ``enqueue`` returned, or ids. One that was deduplicated stands for the job that
    it was deduplicated onto; one that is dead, cancelled or pruned ends the wait with that.
    """
    ids = [_id_of(job, name) for job in jobs]
    journal = _journal(name, "wait_for_jobs")
    memo = journal.take(name, Kind.JOBS)
    if memo is None or memo.status is not Status.DONE:
        memo = _await_jobs(journal, name, ids)
    return list(msgspec.json.decode(memo.output or "[]", type=list[JobEnd]))


def _await_jobs(journal: Journal, name: str, ids: Sequence[UUID]) -> Memo:
    journal.begin(name)
    ends = journal.rows.outcomes_of(ids)
    texts = [ends[id_][1] for id_ in ids]
    if all(text is not None for text in texts):
        closed = [
            _child(journal, f"{name}/{number}", Status.CLOSED)
            for number in range(len(ids))
            if journal.peek(f"{name}/{number}") is not None
        ]
        memo = Memo(name, Kind.JOBS, Status.DONE, output=f"[{','.join(map(str, texts))}]")
        journal.store(memo, *closed)
        return memo
    waits = [
        _child(
            journal,
            f"{name}/{number}",
            Status.WAITING if ends[id_][1] is None else Status.DONE,
            ends[id_][0],
        )
        for number, id_ in enumerate(ids)
        if ends[id_][0] is not None
    ]
    journal.store(Memo(name, Kind.JOBS, Status.WAITING), *waits)
    staged = any(standing == (None, None) for standing in ends.values())
    left = sum(text is None for text in texts)
    raise journal.suspend(
        STAGED_POLL if staged else LONGEST, f"waits for {left} jobs: step {name!r}"
    )


def first(name: str, /, **branches: Branch) -> Winner:
    """The first of these to happen; which one it was is stored, and the others wait no more.

    ``step.first("answer", yes=step.Event("approved"), late=step.Timer(3600))``. Of several that
    have happened, the one that is named first wins.
    """
    _check_branches(name, branches)
    journal = _journal(name, "first")
    memo = journal.take(name, Kind.FIRST)
    if memo is not None and memo.status is Status.DONE:
        return _winner(memo, branches)
    if memo is None:  # Before its branches, so that they come after it in the run's order.
        journal.begin(name)
        journal.store(Memo(name, Kind.FIRST, Status.WAITING))
    polled = {key: _poll(journal, f"{name}/{key}", branches[key]) for key in branches}
    for key, one in polled.items():
        if one.status is Status.DONE or one.is_due:
            memo = _decided(journal, name, key, polled)
            return _winner(memo, branches)
    delay = min((one.wait for one in polled.values() if one.wait is not None), default=LONGEST)
    raise journal.suspend(delay, f"waits for the first of {', '.join(branches)}: step {name!r}")


def _decided(journal: Journal, name: str, key: str, polled: dict[str, Memo]) -> Memo:
    value = polled[key].output or "null"
    output = f'{{"name":{text_of(key, name)},"value":{value}}}'
    memo = Memo(name, Kind.FIRST, Status.DONE, output=output)
    losers = []
    for other, one in polled.items():
        if other != key:
            closed = Memo(one.name, one.kind, Status.CLOSED)
            losers.append(closed)
    journal.begin(name)
    journal.store(memo, *losers)
    return memo


def _winner(memo: Memo, branches: dict[str, Branch]) -> Winner:
    raw = msgspec.json.decode(memo.output or "{}", type=dict[str, msgspec.Raw])
    name = msgspec.json.decode(raw["name"], type=str)
    branch, text = branches.get(name), bytes(raw["value"]).decode()
    kind: Any = branch.type if isinstance(branch, Event) else Any
    if isinstance(branch, JobEnds):
        kind = JobEnd
    return Winner(name, read(text, kind))


def _poll(journal: Journal, name: str, branch: Branch) -> Memo:
    """Where one branch stands: begun when it is new."""
    if isinstance(branch, Event):
        wanted = EventWait.of(name, branch.event, branch.match, None)
        return wanted.poll(journal, journal.take(name, Kind.EVENT))
    if isinstance(branch, Timer):
        memo = journal.take(name, Kind.SLEEP)
        if memo is None:
            length = length_of(branch.duration, f"step {name!r}")
            memo = Memo(name, Kind.SLEEP, Status.WAITING, wait=length)
            journal.begin(name)
            journal.store(memo)
        return memo
    journal.take(name, Kind.JOB)
    id_ = _id_of(branch.job, name)
    job_id, end = journal.rows.outcomes_of([id_])[id_]
    memo = _child(journal, name, Status.WAITING if end is None else Status.DONE, job_id)
    memo.output = end
    journal.begin(name)
    journal.store(memo)
    memo.wait = STAGED_POLL if job_id is None else None
    return memo


def _child(journal: Journal, name: str, status: Status, job_id: UUID | None = None) -> Memo:
    return Memo(name, Kind.JOB, status, child=job_id, tenant=journal.current.tenant)


def _check_branches(name: str, branches: dict[str, Any]) -> None:
    wrong = [key for key, one in branches.items() if not isinstance(one, Branch)]
    if wrong or len(branches) < 2:
        raise StepRefused(
            f"step.first({name!r}) needs two or more branches, each a step.Event, step.Timer or "
            f"step.JobEnds{f'; {wrong[0]!r} is none' if wrong else ''}."
        )


def _id_of(job: Any, name: str) -> UUID:
    id_ = getattr(job, "id", job)
    if isinstance(id_, str):
        try:
            id_ = UUID(id_)
        except ValueError:
            id_ = None
    if not isinstance(id_, UUID):
        raise StepRefused(f"step {name!r}: {job!r} is no job; pass what enqueue returned, or ids.")
    return id_


def _journal(name: str, verb: str) -> Journal:
    journal = journal_here()
    if journal is None:
        raise NoCurrentJob(
            f"step.{verb}({name!r}) has nothing to wait for outside a worker. In tests run the job "
            "with django_jobs.testing.drain()."
        )
    return journal


async def afirst(name: str, /, **branches: Branch) -> Winner:
    """``first`` for async bodies."""

    def race() -> Winner:
        return first(name, **branches)

    winner: Winner = await in_thread(race)
    return winner


async def await_jobs(name: str, jobs: Iterable[Any], /) -> list[JobEnd]:
    """``wait_for_jobs`` for async bodies."""
    ends: list[JobEnd] = await in_thread(wait_for_jobs, name, list(jobs))
    return ends
