"""Crash a job at each of its commits in turn, resume it, and compare what it left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, ParamSpec

from django.apps import apps
from django.db import connections, models, router, transaction
from django.db.models.functions import Now

from django_jobs import conf
from django_jobs.definitions import Definition
from django_jobs.loops import waker
from django_jobs.models import Job
from django_jobs.operations import outbox_aliases
from django_jobs.signals import job_ended, job_started
from django_jobs.states import FINISHED
from django_jobs.testing.draining import advance, drain

P = ParamSpec("P")

MOST_MOMENTS = 500
MOST_WAITS = 100
LONGEST_WAIT = timedelta(days=3650)
_DURABLE = ("INSERT", "UPDATE", "DELETE", "WITH", "RELEASE")


class Crash(BaseException):
    """The process ends here. It is no ``Exception``, so that a body does not survive it."""


def assert_crash_safe(job: Definition[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> int:
    """Assert that ``job`` leaves the same rows wherever its process crashes; how many moments.

    The job runs once undisturbed. Then it runs again for each moment before and after each commit
    of its body (each write outside a transaction, each transaction, each step, each fence), crashes
    there, is taken over and runs to its end; sleeps are skipped. What all other models' tables hold
    then must be equal each time, but for automatic keys and times. Every run is rolled back, so
    that the test's database is as it was. Raises ``AssertionError`` that names the moment.
    """
    expected, moments = _outcome(job, args, kwargs, crash_at=None)
    if len(moments) > MOST_MOMENTS:
        raise AssertionError(f"{job.name} has {len(moments)} moments to crash at; use less data.")
    for number, moment in enumerate(moments):
        left, _ = _outcome(job, args, kwargs, crash_at=number)
        if left != expected:
            raise AssertionError(
                f"{job.name} is not crash safe: crashed {moment}, it left other rows.\n"
                f"{_difference(expected, left)}\nGive each effect a step of its own, and make "
                "it atomic=True, or harmless to repeat."
            )
    return len(moments)


def _outcome(
    job: Definition[..., Any], args: Any, kwargs: Any, crash_at: int | None
) -> tuple[dict[str, list[str]], list[str]]:
    """What one run leaves, and the moments it passed. Everything is rolled back."""
    with _rolled_back() as aliases:
        id_ = job.enqueue(*args, **kwargs).id
        moments = Moments(job.name, crash_at)
        with moments.watching(aliases):
            try:
                drain()
            except Crash:
                for alias in aliases:
                    transaction.set_rollback(False, using=alias)
        waker.lapse("drain")
        _finish(job.name)
        return _rows(aliases, str(id_)), moments.seen


class Moments:
    """The moments of a job's body at which something becomes durable, numbered from 0.

    At moment ``crash_at`` it raises ``Crash``, and again for every later statement: a dead
    process executes nothing.
    """

    def __init__(self, name: str, crash_at: int | None) -> None:
        self.seen: list[str] = []
        self._name, self._crash_at = name, crash_at
        self._running = self._crashed = False
        self._depths: dict[str, int] = {}

    @contextmanager
    def watching(self, aliases: list[str]) -> Iterator[None]:
        """See every statement of the body."""
        job_started.connect(self._begin)
        job_ended.connect(self._end)
        try:
            with ExitStack() as stack:
                for alias in aliases:
                    self._depths[alias] = len(connections[alias].savepoint_ids)
                    stack.enter_context(connections[alias].execute_wrapper(self))
                yield
        finally:
            job_started.disconnect(self._begin)
            job_ended.disconnect(self._end)

    def _begin(self, sender: str, **_: Any) -> None:
        self._running = sender == self._name

    def _end(self, **_: Any) -> None:
        self._running = False

    def __call__(  # noqa: D102 - Django's protocol of an execute wrapper
        self, execute: Any, sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        words = str(sql).lstrip().upper()
        releases, connection = words.startswith("RELEASE"), context["connection"]
        if self._crashed:
            if releases or words.startswith("ROLLBACK"):
                return execute(sql, params, many, context)
            raise Crash
        outermost = len(connection.savepoint_ids) == self._depths[connection.alias]
        if not (self._running and outermost and words.startswith(_DURABLE)):
            return execute(sql, params, many, context)
        what = "its commit" if releases else f"{' '.join(words.split()[:6])} …"
        if self._passed(f"before {what}"):
            if releases:  # What a crash here leaves of the transaction is nothing.
                execute(f"ROLLBACK TO {str(sql).split(maxsplit=1)[1]}", params, many, context)
            raise Crash
        answer = execute(sql, params, many, context)
        if self._passed(f"after {what}"):
            raise Crash
        return answer

    def _passed(self, moment: str) -> bool:
        self._crashed = len(self.seen) == self._crash_at
        self.seen.append(moment)
        return self._crashed


@contextmanager
def _rolled_back() -> Iterator[list[str]]:
    """A transaction on every database that models live in, as a test case has it, undone."""
    used = [router.db_for_write(model) for model in apps.get_models()]
    aliases = list(dict.fromkeys((conf.current().database, *outbox_aliases(), *used)))
    with ExitStack() as stack:
        for alias in aliases:
            block: Any = transaction.atomic(using=alias)
            block._from_testcase = True  # Jobs and fences look at the blocks inside it.
            stack.enter_context(block)
        yield aliases
        for alias in aliases:
            transaction.set_rollback(True, using=alias)


def _finish(name: str) -> None:
    """Run everything to its end, sleeps and retries too."""
    for _ in range(MOST_WAITS):
        drain()
        live = Job.objects.exclude(state__in=[state.value for state in FINISHED])
        soonest = live.annotate(now=Now()).order_by("run_at").values_list("run_at", "now").first()
        if soonest is None:
            return
        wait = soonest[0] - soonest[1]
        if wait > LONGEST_WAIT:
            break
        advance(max(wait, timedelta()) + timedelta(seconds=0.01))
    raise AssertionError(f"{name} does not end by itself; does it wait for an event?")


def _rows(aliases: list[str], job_id: str) -> dict[str, list[str]]:
    """What the tables of all other models hold, without automatic keys and times."""
    found = {}
    for model in apps.get_models():
        meta = model._meta
        if meta.app_label == "django_jobs" or not meta.managed or meta.proxy:
            continue
        names = [field.attname for field in meta.concrete_fields if not _is_automatic(field)]
        for alias in aliases:
            if router.allow_migrate_model(alias, model):
                rows = model._base_manager.using(alias).values_list(*names) if names else []
                shown = sorted(repr(row).replace(job_id, "<its id>") for row in rows)
                found[f"{meta.label} in {alias!r}"] = shown
    return found


def _is_automatic(field: Any) -> bool:
    target = field.target_field if field.is_relation else field
    timed = getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False)
    return isinstance(target, models.AutoField) or timed


def _difference(expected: dict[str, list[str]], left: dict[str, list[str]]) -> str:
    lines = []
    for table, rows in expected.items():
        gone, new = Counter(rows), Counter(left[table])
        lines += [f"  {table} lacks {row}" for row in (gone - new).elements()]
        lines += [f"  {table} has in excess {row}" for row in (new - gone).elements()]
    return "\n".join(lines[:20])
