"""Emit: an event is stored in the caller's transaction, and found once that has committed."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from django_jobs import conf
from django_jobs.current import current_job_or_none
from django_jobs.durations import LONGEST, seconds
from django_jobs.errors import EmitRefused, OtherDatabaseOpen, ResultError
from django_jobs.keys import MAX_TENANT, plain_text
from django_jobs.models import Event, picking
from django_jobs.models.waking import Hint, notify
from django_jobs.payloads import encode_value

MAX_EVENT = 200
MAX_MATCH = 512


def emit(
    event: str,
    payload: object = None,
    /,
    *,
    tenant: str | None = None,
    match: object = None,
    expires: float | timedelta | None = None,
) -> None:
    """Say that ``event`` happened: exactly if the open transaction commits.

    Every run that waits for it goes on: those of ``tenant`` (by default that of the running job,
    else none), with ``match`` those that wait for an equal one or for any. It counts for
    ``expires`` seconds, by default the setting ``EVENT_RETENTION``, also for waits that begin
    later in jobs that are enqueued already.

    Raises ``EmitRefused`` before anything is written, ``OtherDatabaseOpen`` when a transaction is
    open on another database only, with which the event would not roll back.
    """
    settings = conf.current()
    plain_text(event, "event", chars=MAX_EVENT)
    if tenant is None:
        current = current_job_or_none()
        tenant = current.tenant if current is not None else ""
    elif tenant:
        plain_text(tenant, "tenant", chars=MAX_TENANT)
    matched = None if match is None else plain_text(str(match), "match", chars=MAX_MATCH)
    try:
        text = encode_value(payload, settings.max_payload, f"the payload of event {event!r}")
    except ResultError as error:
        raise EmitRefused(str(error)) from error
    length = seconds(settings.event_retention if expires is None else expires)
    if not length or length > LONGEST:
        raise EmitRefused(f"expires={expires!r} is no number of seconds (or timedelta) above 0.")
    _refuse_other_transactions(settings.database)
    rows = Event.objects.all()
    rows.emit(event, text or "null", tenant=tenant, match=matched, expires=length)
    _tell_after_commit(settings.database)


async def aemit(
    event: str,
    payload: object = None,
    /,
    *,
    tenant: str | None = None,
    match: object = None,
    expires: float | timedelta | None = None,
) -> None:
    """``emit`` for async code."""
    work = partial(emit, event, payload, tenant=tenant, match=match, expires=expires)
    await sync_to_async(work)()


def _refuse_other_transactions(jobs: str) -> None:
    if picking.in_transaction(jobs):
        return
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and picking.in_transaction(connection.alias):
            raise OtherDatabaseOpen(
                f"A transaction is open on database {connection.alias!r}, and this event, stored "
                f"in {jobs!r}, would exist even if it rolled back. Emit it in "
                "transaction.on_commit(), or in a job that is enqueued in the transaction."
            )


def _tell_after_commit(alias: str) -> None:
    if connections[alias].in_atomic_block:
        transaction.on_commit(lambda: notify(alias, Hint.EMITTED), using=alias, robust=True)
    else:
        notify(alias, Hint.EMITTED)
