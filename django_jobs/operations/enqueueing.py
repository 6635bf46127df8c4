"""Enqueue: inside a transaction a job is staged in it, outside it is published at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ParamSpec, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections

from django_jobs import conf, definitions
from django_jobs.current import current_job_or_none
from django_jobs.definitions import Call, Definition, Enqueued, Request
from django_jobs.errors import DuplicateJob, EnqueueError, OtherDatabaseOpen
from django_jobs.ids import new_id
from django_jobs.models import depths, picking, publishing
from django_jobs.models.outbox import Entry
from django_jobs.models.publishing import Published
from django_jobs.models.staging import CallersTransaction, callers_transaction
from django_jobs.models.waking import Hint, notify
from django_jobs.operations.announcing import announce
from django_jobs.tracing import current_traceparent

P = ParamSpec("P")
R = TypeVar("R")

DIRECT_LIMIT = 500
"""Calls that one publish transaction takes; more are staged and published by the relay."""


def enqueue(job: Definition[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
    """Have ``job`` run with these arguments: exactly if the open transaction commits.

    Outside a transaction the job exists when this returns, unless its queue is over its limit
    (``MAX_READY``): then it is staged, and exists as soon as there is room. Raises an
    ``EnqueueError`` before anything is written when the call cannot become a job.
    """
    request = definitions.request_of(job, args, kwargs)
    return _enqueue_in(request.database, [request])[0]


async def aenqueue(job: Definition[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
    """``enqueue`` for async code. Django has no async transactions: it is published at once."""
    return await sync_to_async(enqueue)(job, *args, **kwargs)


def enqueue_many(calls: Iterable[Call]) -> list[Enqueued]:
    """Enqueue many calls, made with ``job.call(...)``; all of them or, on an error, none.

    Any number: 70,000 in one call are fine. Results are in the order of ``calls``.
    """
    return _enqueue([call.request() for call in calls])


def _enqueue(requests: Sequence[Request]) -> list[Enqueued]:
    by_alias: dict[str | None, list[int]] = {}
    for number, request in enumerate(requests):
        by_alias.setdefault(request.database, []).append(number)
    results: dict[int, Enqueued] = {}
    for database, numbers in by_alias.items():
        chosen = [requests[number] for number in numbers]
        results.update(zip(numbers, _enqueue_in(database, chosen), strict=True))
    return [results[number] for number in range(len(requests))]


def _enqueue_in(database: str | None, requests: Sequence[Request]) -> list[Enqueued]:
    staging = _staging_alias(database)
    jobs = conf.current().database
    if staging is not None:
        return stage_in(staging, requests)
    _refuse_other_transactions()
    elsewhere = [alias for alias in outbox_aliases() if alias != jobs]
    if elsewhere and any(request.lane is not None for request in requests):
        # What is staged in another database cannot be displaced from here: there is one order
        # of a lane only where all of it goes through one outbox.
        staging = database or elsewhere[0]
        with picking.own_transaction(staging):
            return stage_in(staging, requests)
    if len(requests) <= DIRECT_LIMIT and not _must_wait(jobs, requests):
        return _publish(jobs, requests)
    with picking.own_transaction(jobs):
        return stage_in(jobs, requests)


def _must_wait(alias: str, requests: Sequence[Request]) -> bool:
    """Whether a queue is over its limit, so that the calls wait in the outbox until it has room.

    Not in a test case's transaction: nobody else would ever see what waits there, and a count that
    is taken now and then would make its number of statements a matter of luck.
    """
    if connections[alias].in_atomic_block:
        return False
    waiting = (r for r in requests if not (r.bypass or r.delay or r.run_at or r.lane is not None))
    queues = {r.queue for r in waiting}
    return any(_is_full(queue) for queue in queues)


def _is_full(queue: str) -> bool:
    gauge = depths.gauge_of(queue)
    return gauge.overflowing or not gauge.room


def _staging_alias(database: str | None) -> str | None:
    """The outbox whose open transaction decides about the job, or ``None``: publish at once."""
    outboxes = outbox_aliases()
    if database is not None and database not in outboxes:
        raise EnqueueError(
            f"database={database!r} has no outbox. Add it to "
            f"DJANGO_JOBS['OUTBOX_DATABASES'] (now {', '.join(outboxes)}) and migrate it."
        )
    for alias in outboxes if database is None else (database,):
        if picking.in_transaction(alias):
            return alias
    return None


def outbox_aliases() -> tuple[str, ...]:
    """The aliases that have an outbox; jobs of the first one in a transaction are staged there."""
    return conf.current().outbox_aliases


def _refuse_other_transactions() -> None:
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and picking.in_transaction(connection.alias):
            raise OtherDatabaseOpen(
                f"A transaction is open on database {connection.alias!r}, and this job would exist "
                "even if it rolled back. Add the alias to DJANGO_JOBS['OUTBOX_DATABASES'] and do "
                "not name another with database=, or enqueue outside the transaction."
            )


def _entries(requests: Sequence[Request], batch: UUID | None) -> list[Entry]:
    running = current_job_or_none()
    traceparent = current_traceparent() or (running.traceparent if running else "")
    release = conf.current().release
    return [_entry(request, batch, traceparent, release) for request in requests]


def _entry(request: Request, batch: UUID | None, traceparent: str, release: str) -> Entry:
    id_ = new_id()
    key = request.idempotency_key
    return {
        "id": id_,
        "name": request.name,
        "queue": request.queue,
        "priority": request.priority,
        "tenant": request.tenant,
        "idempotency_key": str(id_) if key is None else key,
        "lane": request.lane,
        "payload": request.payload,
        "run_at": request.run_at,
        "delay": request.delay,
        "max_attempts": request.max_attempts,
        "timeout": request.timeout,
        "on_conflict": request.on_conflict,
        "bypass": request.bypass,
        "blocked": False,
        "enqueued_by": request.enqueued_by,
        "traceparent": traceparent,
        "release": release,
        "batch": batch,
        "staged_at": None,
        "lane_token": None,
    }


def stage_in(alias: str, requests: Sequence[Request]) -> list[Enqueued]:
    """Stage calls in the open transaction of ``alias``, which is ours."""
    caller = callers_transaction(alias)
    entries = _entries(requests, caller.batch)
    # A key that is the call's own id has no holder, and looking costs more than the insert. In a
    # lane a holder could run to its end on old data before this transaction commits.
    keyed = any(
        request.idempotency_key is not None and request.lane is None for request in requests
    )
    look = keyed and alias == conf.current().database
    if len(entries) == 1 and picking.is_postgres(alias):
        return [_stage_one(caller, entries[0], look)]
    _refuse_known_duplicates(alias, entries)
    standing = publishing.stage(alias, entries, look=look)
    caller.wake_after_commit()
    return [
        _deduped(standing[entry["id"]])
        if entry["id"] in standing
        else Enqueued(entry["id"], "staged", None)
        for entry in entries
    ]


def _stage_one(caller: CallersTransaction, entry: Entry, look: bool) -> Enqueued:
    _refuse_known_duplicates(caller.alias, (entry,))
    holder = caller.stage_one(entry, look=look)
    caller.wake_after_commit()
    return Enqueued(entry["id"], "staged", None) if holder is None else _deduped(holder)


def _refuse_known_duplicates(alias: str, entries: Sequence[Entry]) -> None:
    """Raise ``DuplicateJob`` when it can be known now; later it becomes the entry's outcome."""
    strict = [entry for entry in entries if entry["on_conflict"] == "error"]
    if not strict:
        return
    found = publishing.holders(conf.current().database, strict)
    found |= publishing.staged_holders(alias, strict)
    first: dict[tuple[str, str, str], UUID] = {}
    for entry in entries:
        key = entry["name"], entry["tenant"], entry["idempotency_key"]
        holder = found.get(entry["id"]) or first.setdefault(key, entry["id"])
        if entry["on_conflict"] == "error" and holder != entry["id"]:
            raise DuplicateJob(entry["name"], entry["idempotency_key"], holder)


def _publish(alias: str, requests: Sequence[Request]) -> list[Enqueued]:
    entries = [_in_its_lane(entry) for entry in _entries(requests, None)]
    published = picking.retrying(lambda: _insert(alias, entries))
    standing = published.standing
    for entry in entries:
        if standing[entry["id"]] == entry["id"] and not entry["blocked"]:
            depths.count(entry["queue"], 1)
    if any(entry["delay"] or entry["run_at"] for entry in entries):
        notify(alias, Hint.STAGED)  # For the loop that knows when the next job is due.
    notify(alias, Hint.READY)
    announce(alias, published)
    return [
        Enqueued(entry["id"], "published", entry["id"])
        if standing[entry["id"]] == entry["id"]
        else _deduped(standing[entry["id"]])
        for entry in entries
    ]


def _in_its_lane(entry: Entry) -> Entry:
    """``entry``; over its queue's limit one of a lane becomes a job at once, but a blocked one."""
    if entry["lane"] is None or entry["bypass"]:
        return entry
    return {**entry, "blocked": _is_full(entry["queue"])}


def _insert(alias: str, entries: Sequence[Entry]) -> Published:
    if len(entries) == 1 and entries[0]["lane"] is None:  # One statement is a transaction.
        return _insert_or_refuse(alias, entries)
    with picking.own_transaction(alias):
        return _insert_or_refuse(alias, entries)


def _insert_or_refuse(alias: str, entries: Sequence[Entry]) -> Published:
    published = publishing.publish_now(alias, entries)
    standing = published.standing
    for entry in entries:
        if entry["on_conflict"] == "error" and standing[entry["id"]] != entry["id"]:
            raise DuplicateJob(entry["name"], entry["idempotency_key"], standing[entry["id"]])
    return published


def _deduped(job_id: UUID) -> Enqueued:
    return Enqueued(job_id, "deduped", job_id)


definitions.bind(enqueue)
