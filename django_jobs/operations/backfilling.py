"""What an operator orders of a backfill: start, pause, resume, cancel, another rate."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

from django.db import IntegrityError
from django.db.models.functions import Now

from django_jobs import conf
from django_jobs.backfills import Backfill as Declaration
from django_jobs.backfills import is_rate, named
from django_jobs.errors import BackfillNotFound, BackfillRefused, JobNotFound, MoveRefused
from django_jobs.models import Backfill, BackfillRange, picking
from django_jobs.operations.gate import check_gate
from django_jobs.operations.standing import cancel
from django_jobs.states import OPEN_PASSES, PassState


def start_backfill(
    declared: Declaration, *, tenant: str = "", force: bool = False, by: str = ""
) -> Backfill:
    """Begin a pass: its row and its job are one transaction.

    Raises ``BackfillRefused``: a gate is closed, or a pass is running or paused (``job_id`` is
    its job).
    """
    check_gate(declared, tenant, force=force)
    alias = conf.current().database
    try:
        with picking.own_transaction(alias):
            started: Backfill = Backfill.objects.create(
                name=declared.name,
                tenant=tenant,
                checksum=declared.checksum,
                release=conf.current().release,
                rate=declared.declared.rate,
                rate_per=declared.declared.rate_per,
                ordered_by=by,
            )
            BackfillRange.objects.create(backfill=started, batch=declared.declared.batch)
            _enqueue(declared, started, by)
    except IntegrityError as error:
        running = _open_pass(declared.name, tenant)
        if running is None:
            raise
        raise BackfillRefused(
            "running",
            f"{declared.name} is {running.state} already (pass {running.pk}).",
            running.job_id,
        ) from error
    return started


def pause_backfill(pass_id: UUID, *, by: str = "", reason: str = "") -> None:
    """Stop after the page that is on its way, until it is resumed.

    Raises ``BackfillRefused`` when it does not run, ``BackfillNotFound``.
    """
    _ordered(pass_id, (PassState.RUNNING,), PassState.PAUSED, by, reason)


def resume_backfill(pass_id: UUID, *, by: str = "") -> None:
    """Go on where it stopped: a paused or failed pass, or a running one whose workers died.

    What a job of it may still be doing is void from now on. Raises ``BackfillRefused``,
    ``BackfillNotFound``, also when the backfill is no longer declared.
    """
    row = found_pass(pass_id)
    declared = named(row.name)
    stoppable = (PassState.PAUSED, PassState.FAILED)
    with picking.own_transaction(conf.current().database):
        # Its job is asked for in the statement that moves it, or two operators start two jobs.
        sources = stoppable if row.live else (*stoppable, PassState.RUNNING)
        same = Backfill.objects.filter(pk=pass_id, job_id=row.job_id)
        if not same.move(sources, PassState.RUNNING, finished_at=None, error="", ordered_by=by):
            raise _state_refused(pass_id, "resumed")
        BackfillRange.objects.all().let_go(pass_id)
        parts = BackfillRange.objects.filter(backfill_id=pass_id, done=False).count()
        for _ in range(max(1, min(parts, declared.declared.parallel))):
            _enqueue(declared, row, by)


def cancel_backfill(pass_id: UUID, *, by: str = "", reason: str = "") -> None:
    """Stop for good. The pages that have committed stay.

    Raises ``BackfillRefused`` when it has ended, ``BackfillNotFound``.
    """
    sources = (*OPEN_PASSES, PassState.FAILED)
    _ordered(pass_id, sources, PassState.CANCELLED, by, reason)
    row = found_pass(pass_id)
    jobs = {row.job_id, *row.ranges.filter(done=False).values_list("job_id", flat=True)}
    for job_id in sorted(job_id for job_id in jobs if job_id is not None):
        # It has seen the state and ended by itself meanwhile, or it never began.
        with contextlib.suppress(JobNotFound, MoveRefused):
            cancel(job_id, by=by, reason=reason or "its backfill was cancelled")


def rerate_backfill(pass_id: UUID, rate: float | None, rate_per: str | None = None) -> None:
    """Another speed limit, from the next page on; ``None`` is no limit.

    Raises ``BackfillRefused`` for a pass that has ended and for no possible rate,
    ``BackfillNotFound``.
    """
    if rate is not None and not is_rate(rate):
        raise BackfillRefused("state", f"rate {rate!r}: expected a finite number above 0.")
    if rate_per not in (None, "pages", "rows"):
        raise BackfillRefused("state", f'rate_per {rate_per!r}: expected "pages" or "rows".')
    values = {} if rate_per is None else {"rate_per": rate_per}
    live = Backfill.objects.filter(pk=pass_id, state__in=[s.value for s in OPEN_PASSES])
    if not live.update(rate=rate, **values):
        raise _state_refused(pass_id, "given another rate")


def found_pass(pass_id: UUID) -> Any:
    """The pass with its progress; raises ``BackfillNotFound``."""
    row = Backfill.objects.all().with_progress().filter(pk=pass_id).first()
    if row is None:
        raise BackfillNotFound(f"There is no pass {pass_id}.")
    return row


def newest_pass(name: str, tenant: str = "") -> Any:
    """The newest pass of a backfill; raises ``BackfillNotFound``."""
    passes = Backfill.objects.all().with_progress().filter(name=name, tenant=tenant)
    row = passes.order_by("-created_at", "-id").first()
    if row is None:
        raise BackfillNotFound(f"{name} has no pass yet; start one with run.")
    return row


def _enqueue(declared: Declaration, row: Backfill, by: str) -> None:
    job = declared.job.using(database=conf.current().database, enqueued_by=by or None)
    made = job.enqueue(pass_id=row.pk, tenant=row.tenant)
    row.job_id = made.id
    Backfill.objects.filter(pk=row.pk).update(job_id=made.id)


def _open_pass(name: str, tenant: str) -> Backfill | None:
    states = [state.value for state in OPEN_PASSES]
    found: Backfill | None = Backfill.objects.filter(
        name=name, tenant=tenant, state__in=states
    ).first()
    return found


def _ordered(
    pass_id: UUID, sources: tuple[PassState, ...], target: PassState, by: str, reason: str
) -> None:
    values = {"finished_at": Now()} if target is PassState.CANCELLED else {}
    one = Backfill.objects.filter(pk=pass_id)
    if not one.move(sources, target, ordered_by=by, reason=reason, note="", **values):
        raise _state_refused(pass_id, target.value)


def _state_refused(pass_id: UUID, what: str) -> BackfillRefused:
    row = found_pass(pass_id)
    working = " and a job works on it" if row.live else ""
    return BackfillRefused("state", f"Pass {pass_id} is {row.state}{working}; it cannot be {what}.")
