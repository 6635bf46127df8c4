"""What a run writes of its own. Each write carries its lease: a stale run writes nothing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    InterfaceError,
    OperationalError,
    connections,
    transaction,
)

from django_jobs import conf
from django_jobs.errors import (
    AtomicNeedsOneDatabase,
    FenceRefused,
    LeaseLost,
    StepRefused,
    Superseded,
)
from django_jobs.models import endings, memos, picking
from django_jobs.models.event import Event
from django_jobs.models.job import Job
from django_jobs.models.run import Run
from django_jobs.payloads import encode_value
from django_jobs.steps.memo import Memo

T = TypeVar("T")

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

    def in_own_transaction(self) -> bool:
        """Whether a fenced transaction of the run is open on this thread."""
        return self.fence is not None

    def require_place(self, what: str, atomic: bool | str) -> None:
        """Whether a step may store something here.

        Raises ``StepRefused`` inside a transaction that would take what is remembered with it,
        and ``AtomicNeedsOneDatabase`` for an atomic step on another database than the jobs'.
        """
        fence = self.fence
        if atomic is not False:
            asked = DEFAULT_DB_ALIAS if atomic is True else atomic
            for alias in (asked, self._jobs if fence is None else fence.alias):
                if alias != self._jobs:
                    raise AtomicNeedsOneDatabase(what, alias, self._jobs)
        in_callers = fence is None and picking.in_transaction(self._jobs)
        if in_callers or (fence is not None and atomic is False):
            raise StepRefused(
                f"{what} is called inside a transaction: what is remembered would roll back with "
                "it, or outlive it. Call it outside the block; or write step.run(..., atomic=True) "
                "inside current_job().atomic() or in place of transaction.atomic()."
            )

    def drop_connections(self) -> None:
        """Close this thread's connections that are in no transaction."""
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()

    def load_steps(self) -> list[Memo]:
        """Every step of the run, in one statement."""
        return self._patiently(lambda: memos.load(self._jobs, self._run.run_id))

    def store_steps(self, steps: Sequence[Memo]) -> dict[str, float | None]:
        """Insert or update; for each name the seconds until it wakes. Raises ``LeaseLost``."""
        in_own = self.in_own_transaction()
        stored = self._patiently(
            lambda: memos.remember(self._jobs, self._run, steps, lock=not in_own)
        )
        if not stored:
            raise self.lost()
        return stored

    def find_event(
        self, event: str, match: str | None, tenant: str, taken: Iterable[int]
    ) -> tuple[int, str] | None:
        """The earliest event since the job was enqueued: its number and payload."""
        events = Event.objects.all()
        found: tuple[int, str] | None = self._patiently(
            lambda: events.earliest_for(self._run.id, event, match, tenant, taken)
        )
        return found

    def outcomes_of(self, ids: Sequence[UUID]) -> dict[UUID, tuple[UUID | None, str | None]]:
        """For each id the job that stands for it, and JSON of its outcome once it has ended."""
        return self._patiently(lambda: endings.of(ids))

    def _patiently(self, work: Callable[[], T]) -> T:
        """``work()``, tried again when the database was away for a moment.

        The effect of a step has happened; to forget it for a lost connection would repeat it.
        Every statement here may be repeated. In a transaction the first error ends it.
        """
        connection = connections[self._jobs]
        if connection.in_atomic_block:
            return work()
        for delay in (0.05, 0.2, 0.8, 2.0, None):
            try:
                return picking.retrying(work)
            except (OperationalError, InterfaceError):
                if delay is None:
                    raise
                connection.close()
            time.sleep(delay * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")

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
