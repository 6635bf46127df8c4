"""What a run writes of its own. Each write carries its lease: a stale run writes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from django_jobs import conf
from django_jobs.errors import FenceRefused, LeaseLost, Superseded
from django_jobs.models import picking
from django_jobs.models.job import Job
from django_jobs.models.run import Run
from django_jobs.payloads import encode_value

SERIALIZATION_FAILURE = "40001"


@dataclass(slots=True)
class Fence:
    """An open transaction of a run, and what its last statements write.

    ``settles``: the job is done with it, with ``result`` (JSON text). ``closing``: the fence has
    been asked. ``settled``: it is stored that the job is done.
    """

    alias: str
    settles: bool = False
    result: str | None = None
    progress: str | None = None
    closing: bool = False
    settled: bool = False


class OwnRows:
    """The rows of one run, written from any of its threads.

    Every write raises ``LeaseLost`` once the job's row no longer carries the run's lease.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._jobs = conf.current().database
        self._fences: dict[int, Fence] = {}

    @property
    def fence(self) -> Fence | None:
        """The fence that is open on this thread."""
        return self._fences.get(threading.get_ident())

    def store_progress(self, value: Any) -> None:
        """Store a JSON value on the job's row; with an open fence, by its last statement.

        Written earlier, it would keep the job's row locked until the commit, and whoever wants
        to cancel or supersede the job waiting.
        """
        text = encode_value(value, conf.current().max_result, "progress") or "null"
        fence = self.fence
        if fence is not None:
            fence.progress = text
        elif not Job.objects.all().store_progress(self._run, text):
            raise self.lost()

    def forget_failures(self) -> None:
        """Give the job all its attempts again, now that this run has committed some of its work.

        Call it outside ``fenced``: it would keep the job's row locked until the commit.
        """
        if (self._run.attempt, self._run.crashes) == (1, 0):
            return
        if not Job.objects.all().forget_failures(self._run):
            raise self.lost()
        self._run.attempt, self._run.crashes = 1, 0

    @contextmanager
    def fenced(self, using: str | None = None, *, settles: bool = False) -> Iterator[Fence]:
        """A transaction on ``using`` whose last statement asks whether the run is still ours.

        ``settles``: it also says that the job is done. Raises ``FenceRefused``, ``LeaseLost``.
        """
        fence = Fence(using or self._jobs, settles=settles)
        self._refuse_nesting(fence.alias)
        self._fences[threading.get_ident()] = fence
        try:
            with self._transaction(fence):
                yield fence
        except LeaseLost:
            if not fence.closing:
                raise
            raise self.lost() from None  # Asked anew, now that nothing is locked any more.
        except OperationalError as error:
            # With a snapshot older than the loss, the fence meets it as a conflict.
            conflict = fence.closing and picking.sqlstate(error) == SERIALIZATION_FAILURE
            if conflict and not self._is_held():
                raise self.lost() from error
            raise
        finally:
            del self._fences[threading.get_ident()]

    def lost(self) -> LeaseLost:
        """Why the run is no longer its job's, as an exception to raise."""
        what = f"job {self._run.name} {self._run.id}"
        try:
            row = Job.objects.filter(id=self._run.id).values_list("state", "superseded_by").first()
        except (DatabaseError, InterfaceError):
            row = None
        if row is not None and row[1] is not None:
            return Superseded(f"{what} was superseded by {row[1]}; nothing more of it is stored")
        state = "gone" if row is None else row[0]
        return LeaseLost(f"{what} is no longer this run's (it is {state}); nothing is stored")

    def _is_held(self) -> bool:
        return bool(Job.objects.all().still_held([self._run]))

    def _refuse_nesting(self, alias: str) -> None:
        what = f"job {self._run.name}: current_job().atomic()"
        if self.fence is not None:
            raise FenceRefused(f"{what} cannot be nested. Leave the inner one out.")
        for open_alias in dict.fromkeys((alias, self._jobs)):
            if picking.in_transaction(open_alias):
                raise FenceRefused(
                    f"{what} is called inside a transaction on database {open_alias!r}. Its fence "
                    "must be the last statement before COMMIT: write it in place of the outer "
                    "transaction.atomic()."
                )

    @contextmanager
    def _transaction(self, fence: Fence) -> Iterator[None]:
        """The block's transaction, and the lock on the job's row held until it has committed."""
        # Left after the block below has committed: the row stays locked until then.
        with ExitStack() as held, transaction.atomic(using=fence.alias, durable=True):
            yield
            if transaction.get_rollback(using=fence.alias):
                return
            if fence.alias != self._jobs:
                held.enter_context(picking.own_transaction(self._jobs))
            self._close(fence)

    def _close(self, fence: Fence) -> None:
        jobs = Job.objects.all()
        fence.closing = True
        ours = True
        if not fence.settles or fence.progress is not None:
            ours = jobs.fence(self._run, conf.current().lease, fence.progress)
        if ours and fence.settles:
            ours = fence.settled = bool(jobs.succeed([(self._run, fence.result)]))
        if not ours:
            raise LeaseLost(f"job {self._run.name} {self._run.id} is no longer this run's")
