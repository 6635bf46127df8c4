"""Rows in any state, and parties: threads that each have database connections of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.db import connections
from django.db.models.functions import Now

from django_jobs.ids import new_token
from django_jobs.models import Job, JobQuerySet, Run
from django_jobs.states import FINISHED, State
from tests.waiting import until

T = TypeVar("T")

PATIENCE = 60.0


class Party:
    """One thread with its own connections: what it opens stays open between its steps."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def start(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin ``work`` here; the caller goes on."""
        return self._thread.submit(work, *arguments)

    def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """``work`` done here, and what it returned or raised."""
        return self.start(work, *arguments).result(PATIENCE)

    def leave(self) -> None:
        """Close this party's connections and end its thread."""
        self._thread.submit(connections.close_all).result(PATIENCE)
        self._thread.shutdown()


@contextmanager
def party() -> Iterator[Party]:
    """A second party for the time of the block."""
    one = Party()
    try:
        yield one
    finally:
        one.leave()


def at_once(*works: Callable[[], T]) -> list[T]:
    """Each of ``works`` on a connection of its own, all let go at the same moment."""
    gate = threading.Barrier(len(works))

    def through_the_gate(work: Callable[[], T]) -> T:
        for alias in connections:
            connections[alias].ensure_connection()
        gate.wait(PATIENCE)
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(through_the_gate, works))


def until_one_waits(alias: str = "default") -> None:
    """Return when a session of ``alias`` (PostgreSQL) waits for a lock that another holds."""

    def waits() -> bool:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return bool(cursor.fetchone()[0])

    until(waits)


def jobs() -> JobQuerySet:
    """Every job, with its verbs."""
    rows = Job.objects.all()
    assert isinstance(rows, JobQuerySet)
    return rows


def make(state: State, **columns: Any) -> Job:
    """A row in ``state`` as the moves leave it: a running one leased, a finished one ended."""
    values: dict[str, Any] = {
        "name": "tests.row",
        "payload": [],
        "run_at": Now() - timedelta(hours=1),
    }
    values["idempotency_key"] = str(new_token())
    if state is State.RUNNING:
        values |= {"lease": new_token(), "worker": "w1", "attempt": 1}
        values |= {"lease_expires_at": Now() + timedelta(seconds=60), "started_at": Now()}
    if state in FINISHED:
        values |= {"finished_at": Now()}
    made = Job.objects.create(state=state.value, **{**values, **columns})
    return row(made.id)


def row(job_id: UUID) -> Job:
    """The row as it is now."""
    found: Job = Job.objects.get(id=job_id)
    return found


def columns(job_id: UUID) -> dict[str, Any]:
    """Every column of the row as it is now."""
    found: dict[str, Any] = Job.objects.filter(id=job_id).values().get()
    return found


def run_of(job: Job, lease: UUID | None = None) -> Run:
    """What the worker that claimed ``job`` carries; with ``lease``, one that holds it."""
    return Run(
        id=job.id,
        run_id=job.run_id,
        name=job.name,
        queue=job.queue,
        priority=job.priority,
        run_at=job.run_at,
        tenant=job.tenant,
        payload="[]",
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        crashes=job.crashes,
        timeout=None,
        traceparent="",
        enqueued_by="",
        lane=job.lane,
        lane_token=job.lane_token,
        lease=lease or job.lease or new_token(),
        worker=job.worker,
    )
