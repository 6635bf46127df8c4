"""Run jobs: ``manage.py runworker``, also found as ``jobs_worker``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import signal
import sys
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import autoreload

from django_jobs import conf
from django_jobs import connections as sessions
from django_jobs.checks import THREADS, check_aliases, check_settings
from django_jobs.loops.plan import LOOPS, STUCK_GRACE, Plan
from django_jobs.loops.process import Process
from django_jobs.loops.supervisor import SECOND_SIGNAL, Supervisor
from django_jobs.models import picking


def names(text: str) -> tuple[str, ...]:
    """A comma-separated list of names; at least one."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise argparse.ArgumentTypeError("expected at least one name")
    return found


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


class Command(BaseCommand):
    """Supervises worker processes; with ``--child``, is one."""

    help = "Runs jobs: publishes committed enqueues, claims, executes and settles."
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options."""
        add = parser.add_argument
        add("--queues", type=names, default=("default",), help="Comma-separated. default: default")
        add("--processes", type=count, default=1, help="Worker processes (default 1)")
        add(
            "--threads",
            type=count,
            help=f"Bodies at a time in each (default {THREADS}; 1 on SQLite)",
        )
        add("--async-slots", type=count, default=20, help="Async bodies at a time in each")
        add("--loops", type=names, default=LOOPS, help=f"Some of {','.join(LOOPS)}")
        add("--drain", action="store_true", help="End with 0 when nothing is left to do")
        add("--max-jobs", type=count, help="Replace a process after this many jobs")
        add("--max-rss", type=count, help="Replace a process above this many megabytes")
        add("--reload", action="store_true", help="Restart when the code changes (development)")
        for internal in ("--child", "--suspects"):
            add(internal, action="store_true", help=argparse.SUPPRESS)
        for internal in ("--lifeline", "--reports"):
            add(internal, type=int, default=-1, help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until stopped."""
        unknown = set(options["loops"]) - set(LOOPS)
        if unknown:
            raise CommandError(f"--loops: no loop {unknown.pop()!r}. Known: {', '.join(LOOPS)}")
        for error in (*check_settings(), *check_aliases()):
            raise CommandError(f"{error.msg}\n\tHINT: {error.hint}")
        alias = conf.current().database
        if not picking.is_postgres(alias) and options["processes"] != 1:
            raise CommandError(
                f"--processes must be 1 on SQLite (database {alias!r}): one process at a time can "
                "write. Use --threads, or PostgreSQL."
            )
        if options["threads"] is None:  # SQLite has one writer: threads would wait for each other.
            options["threads"] = THREADS if picking.is_postgres(alias) else 1
        size = sessions.pool_size(alias)
        if size is not None and size < options["threads"]:
            raise CommandError(
                f"--threads {options['threads']}: the pool of database {alias!r} gives out {size} "
                "connections, and bodies would wait for them. Raise max_size in its "
                "OPTIONS['pool'], or take fewer threads."
            )
        _log_to_stderr()
        if options["child"]:
            sys.exit(_child(options))
        if options["reload"]:
            autoreload.run_with_reloader(lambda: self._supervise(options))
        else:
            self._supervise(options)

    def _supervise(self, options: dict[str, Any]) -> None:
        self.stdout.write(
            f"Working on {', '.join(options['queues'])} with {options['processes']} x "
            f"{options['threads']} threads. Ctrl-C stops in order, twice at once."
        )
        self.stdout.flush()
        supervisor = Supervisor(
            _child_arguments(options),
            processes=options["processes"],
            grace=conf.current().shutdown_grace,
            drain=options["drain"],
        )
        code = supervisor.run()
        if code:
            sys.exit(code)


def _child_arguments(options: dict[str, Any]) -> list[str]:
    arguments = [
        f"--queues={','.join(options['queues'])}",
        f"--loops={','.join(options['loops'])}",
        f"--threads={options['threads']}",
        f"--async-slots={options['async_slots']}",
        f"--verbosity={options['verbosity']}",
    ]
    for name in ("max_jobs", "max_rss"):
        if options[name] is not None:
            arguments.append(f"--{name.replace('_', '-')}={options[name]}")
    if options["drain"]:
        arguments.append("--drain")
    return arguments


def _log_to_stderr() -> None:
    """Show our log lines where the project's LOGGING does not say anything about them."""
    logger = logging.getLogger("django_jobs")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _child(options: dict[str, Any]) -> int:
    """Be a worker process. Ends through ``os._exit``, which a stuck body cannot hold up."""
    signals: list[float] = []

    def on_term(signum: int, frame: object) -> None:
        now = time.monotonic()
        if not signals or now - signals[-1] > SECOND_SIGNAL:
            signals.append(now)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, on_term)
    reports = options["reports"]

    def report(what: str, value: Any = True) -> None:
        if reports >= 0:
            try:
                os.write(reports, (json.dumps({what: value}) + "\n").encode())
            except OSError:
                return  # The supervisor has gone; the lifeline tells the main thread.

    process = Process(_plan(options), report)
    report("worker", process.name)
    process.start()
    lifeline = options["lifeline"]
    while not process.ended.wait(0.05) and not signals:
        if lifeline >= 0 and select.select([lifeline], [], [], 0)[0]:
            lost_workers = os.read(lifeline, 65536).decode().split()
            if not lost_workers:
                break  # The end of the file: the supervisor has gone.
            process.take_back(lost_workers)
    code = _shut_down(process, signals)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _shut_down(process: Process, signals: list[float]) -> int:
    """End in order. Beside a stuck body the others have longer, unless we are told to stop."""
    grace = conf.current().shutdown_grace

    def impatient() -> bool:
        late = bool(signals) and time.monotonic() - signals[0] > grace
        return len(signals) > 1 or late

    return process.shut_down(max(grace, STUCK_GRACE) if process.stuck else grace, impatient)


def _plan(options: dict[str, Any]) -> Plan:
    loops, suspects = options["loops"], options["suspects"]
    return Plan(
        queues=options["queues"],
        threads=1 if suspects else options["threads"],
        async_slots=1 if suspects else options["async_slots"],
        loops=("worker",) if suspects else loops,
        drain=options["drain"],
        max_jobs=options["max_jobs"],
        max_rss=options["max_rss"],
        suspects=suspects,
    )
