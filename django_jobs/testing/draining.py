"""Run what is due in the calling thread; look at what was enqueued; let time pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db.models import F

from django_jobs import conf, definitions
from django_jobs.definitions import Definition
from django_jobs.executor import arun_body, run_body
from django_jobs.leases import Held, LeaseBook
from django_jobs.loops import relay, waker
from django_jobs.loops.settler import Settler
from django_jobs.models import Event, Job, Step, depths, publishing
from django_jobs.operations import outbox_aliases
from django_jobs.outcomes import Buried, Outcome, Retried
from django_jobs.states import LIVE
from django_jobs.steps.memo import DECIDED

LEASE = 3600.0


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a drain. ``outcome`` is one of ``django_jobs.outcomes``."""

    job_id: UUID
    name: str
    outcome: Outcome

    @property
    def error(self) -> str:
        """Class and message of the failure, ``""`` when there was none."""
        if isinstance(self.outcome, Retried | Buried):
            failure = self.outcome.failure
            return f"{failure.error_class}: {failure.message}"
        return ""


def drain(*, queues: Sequence[str] | None = None, limit: int = 10_000) -> list[Ran]:
    """Publish what is staged and run what is due, in this thread, until nothing is.

    Jobs of a later time stay (see ``advance``); a failed attempt is retried when its delay is
    over. ``queues``: only these. Raises ``AssertionError`` after ``limit`` runs: something
    enqueues itself without end.
    """
    ran: list[Ran] = []
    leases = LeaseBook(LEASE)
    settler = Settler(leases)
    while True:
        depths.expire()  # What has run since has made room.
        for alias in outbox_aliases():
            while relay.tick(alias):
                pass
        waker.wake()
        waker.answer()
        held = _claim(leases, queues)
        if held is None:
            return ran
        if len(ran) >= limit:
            raise AssertionError(f"{limit} jobs ran and more are due; does a job enqueue itself?")
        outcome = _run(held)
        settler.put(held, outcome)
        settler.tick()
        ran.append(Ran(held.run.id, held.run.name, held.outcome or outcome))


def _claim(leases: LeaseBook, queues: Sequence[str] | None) -> Held | None:
    jobs = Job.objects.all()
    if queues is None:
        ready = jobs.filter(state="ready", blocked=False)
        queues = sorted(set(ready.values_list("queue", flat=True)))
    for queue in queues:
        for suspects in (False, True):
            runs = jobs.claim(queue, room=1, lease=LEASE, worker="drain", suspects=suspects)
            if runs:
                return leases.add(runs)[0]
    return None


def _run(held: Held) -> Outcome:
    definition = definitions.definition(held.run.name)
    if definition is not None and definition.is_async:
        outcome: Outcome = async_to_sync(arun_body)(held)
        return outcome
    return run_body(held)


def advance(seconds: float | timedelta) -> None:
    """Let time pass for everything that waits: due times, retries, leases, sleeps and timeouts."""
    step = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    live = Job.objects.filter(state__in=LIVE)
    live.update(
        run_at=F("run_at") - step,
        not_before=F("not_before") - step,
        lease_expires_at=F("lease_expires_at") - step,
    )
    waiting = Step.objects.using(conf.current().database).exclude(status__in=DECIDED)
    waiting.update(wake_at=F("wake_at") - step)
    Event.objects.update(expires_at=F("expires_at") - step)
    for alias in outbox_aliases():
        publishing.outbox(alias).pending().update(
            run_at=F("run_at") - step, next_try_at=F("next_try_at") - step
        )


def enqueued(job: Definition[..., Any]) -> list[dict[str, Any]]:
    """The arguments of every live job and unpublished enqueue of ``job``, oldest first."""
    found = []
    rows = Job.objects.filter(name=job.name, state__in=LIVE).order_by("created_at", "id")
    for row in rows:
        found.append(job.arguments.decode(Job.objects.all().payload_of(row.id)))
    for alias in outbox_aliases():
        entries = publishing.outbox(alias).pending().filter(name=job.name).order_by("seq")
        found += [job.arguments.decode(entry.payload) for entry in entries]
    return found


def assert_enqueued(
    job: Definition[..., Any], *, count: int | None = None, **arguments: Any
) -> list[dict[str, Any]]:
    """Assert that ``job`` was enqueued with these arguments (at least; the others may be any).

    ``count``: exactly so often; without it at least once. Returns the arguments found.
    """
    everything = enqueued(job)
    matching = [
        one
        for one in everything
        if all(name in one and one[name] == value for name, value in arguments.items())
    ]
    expected = "at least once" if count is None else f"{count} times"
    if (not matching) if count is None else len(matching) != count:
        wanted = ", ".join(f"{name}={value!r}" for name, value in arguments.items()) or "anything"
        raise AssertionError(
            f"{job.name} was expected {expected} with {wanted}; found {len(matching)}. "
            f"Enqueued in {conf.current().database!r}: {everything or 'nothing'}"
        )
    return matching
