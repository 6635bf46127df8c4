"""Runs one job again and again, and has something happen at each of its statement boundaries.

``python -m tests.steps.crashing JOB WHAT``: WHAT is ``kill`` (the process ends there, as by kill
-9), ``cancel``, ``supersede``, or ``lapse`` (another worker takes the job over and runs it).
For each boundary a process of its own runs the job, and a second one resumes what is left; one line
of JSON says what was found then. This process never opens a connection, so that it may fork.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import django

from django_jobs.signals import job_ended, job_started

AMOUNT = 10


class Boundaries:
    """Counts the moments before each statement, and before and after each commit, of one run.

    From the start of its body until its outcome is stored.
    """

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.seen, self._at, self._act = 0, at, act
        self._counting = False

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        self.passed()
        return execute(sql, params, many, context)

    def begin(self, **_: Any) -> None:
        self._counting = True

    def end(self, **_: Any) -> None:
        self._counting = False

    def passed(self) -> None:
        if not self._counting:
            return
        self.seen += 1
        if self.seen == self._at:
            self._act()

    def watch(self, connection: Any) -> None:
        job_started.connect(self.begin)
        job_ended.connect(self.end)
        connection.execute_wrappers.append(self)
        commit = connection._commit

        def committing() -> None:
            self.passed()
            commit()
            self.passed()

        connection._commit = committing


def meanwhile(work: Callable[[], Any]) -> tuple[Callable[[], None], list[threading.Thread]]:
    """``work`` on connections of its own; whoever starts it goes on when it is done, or blocked."""
    from django.db import connections

    threads: list[threading.Thread] = []

    def on_its_own() -> None:
        try:
            work()
        finally:
            connections.close_all()

    def start() -> None:
        threads.append(threading.Thread(target=on_its_own))
        threads[-1].start()
        threads[-1].join(0.25)

    return start, threads


def attempt(name: str, what: str, at: int) -> int:
    """One run with something at boundary ``at``; 0 when the run has fewer of them."""
    from django.db import connections
    from django.db.models.functions import Now

    from django_jobs import cancel, conf, definitions
    from django_jobs.errors import NotCancellable
    from django_jobs.ids import new_id
    from django_jobs.loops import waker
    from django_jobs.models import Job
    from django_jobs.testing import drain
    from tests.app.models import Account

    alias = conf.current().database
    Account.objects.using(alias).all().delete()
    Account.objects.using(alias).create(name="from", balance=100)
    Account.objects.using(alias).create(name="to", balance=0)
    definition = definitions.definition(name)
    assert definition is not None
    id_ = definition.enqueue(AMOUNT).id

    def stop() -> None:
        try:
            cancel(id_)
        except NotCancellable:
            return

    def supersede() -> None:
        rows = Job.objects.filter(id=id_, state__in=("ready", "running", "suspended"))
        rows.update(state="cancelled", lease=None, superseded_by=new_id(), finished_at=Now())

    def take_over() -> None:
        waker.lapse("drain")
        drain()

    acts = {"cancel": stop, "supersede": supersede, "lapse": take_over}
    start, threads = meanwhile(acts.get(what, lambda: None))
    boundaries = Boundaries(at, (lambda: os._exit(9)) if what == "kill" else start)
    boundaries.watch(connections[alias])
    drain()
    for thread in threads:
        thread.join(30)
    return 9 if boundaries.seen >= at else 0


def resume() -> int:
    """Take over what a lost worker held, run it to its end, and say what is found."""
    from django_jobs import conf
    from django_jobs.loops import waker
    from django_jobs.models import Job
    from django_jobs.testing import drain
    from tests.app.models import Account, Ledger

    alias = conf.current().database
    waker.lapse("drain")
    drain()
    job = Job.objects.order_by("-created_at").first()
    assert job is not None
    found = {
        "state": job.state,
        "balances": dict(Account.objects.using(alias).values_list("name", "balance")),
        "transfers": Ledger.objects.using(alias).filter(note=f"transfer {job.id}").count(),
    }
    print(json.dumps(found), flush=True)
    return 0


def in_a_process(work: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    name, what = sys.argv[1:]
    at, ended = 1, 9
    while ended == 9:
        ended = in_a_process(lambda at=at: (at > 1 and resume()) or attempt(name, what, at))
        at += 1
    assert ended == 0
    assert in_a_process(resume) == 0


if __name__ == "__main__":
    django.setup()
    main()
