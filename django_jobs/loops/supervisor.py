"""The supervisor: starts worker processes, replaces those that end, passes the stop on.

It opens no database connection. Children are spawned, not forked: a fork would copy the locks of
threads that other apps started. Each child is in a session of its own, so that Ctrl-C reaches
only the supervisor, and watches a pipe, so that it drains when the supervisor dies.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from django_jobs.loops.process import RECYCLE

logger = logging.getLogger("django_jobs.supervisor")

SECOND_SIGNAL = 0.5
"""Seconds after which another signal means: now. One Ctrl-C may be delivered more than once."""

LONGEST_BACKOFF = 30.0


@dataclass(slots=True)
class Child:
    """A worker process. ``worker`` is the name it holds leases under, once it has told."""

    process: subprocess.Popen[bytes]
    lifeline: int
    suspects: bool
    started_at: float = field(default_factory=time.monotonic)
    worker: str = ""


class Supervisor:
    """Keeps ``processes`` children running until stopped or, with ``drain``, until all is done."""

    def __init__(self, arguments: Sequence[str], *, processes: int, grace: float) -> None:
        self._arguments = list(arguments)
        self._processes, self._grace = processes, grace
        self._children: list[Child] = []
        self._signals: list[float] = []
        self._suspects_seen = False
        self._lost: list[str] = []
        self._crashes = 0
        self._start_after = 0.0
        self._wanted = processes

    def run(self) -> int:
        """Supervise; the exit code: 0, or the worst of the children's when stopping."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)
        worst = 0
        while self._wanted or self._children:
            if self._signals:
                return self._stop()
            self._start_missing()
            for child in [c for c in self._children if c.process.poll() is not None]:
                worst = max(worst, self._ended(child))
            time.sleep(0.02)
        return worst

    def _on_signal(self, signum: int, frame: object) -> None:
        now = time.monotonic()
        if not self._signals or now - self._signals[-1] > SECOND_SIGNAL:
            self._signals.append(now)

    def _start_missing(self) -> None:
        if time.monotonic() < self._start_after:
            return
        while sum(not child.suspects for child in self._children) < self._wanted:
            self._children.append(self._start(suspects=False))
        if self._suspects_seen and not any(child.suspects for child in self._children):
            self._suspects_seen = False
            self._children.append(self._start(suspects=True))

    def _start(self, *, suspects: bool) -> Child:
        lifeline_read, lifeline = os.pipe()
        reports, reports_write = os.pipe()
        command = [sys.executable, "-m", "django", "jobs_worker", *self._arguments, "--child"]
        command += ["--lifeline", str(lifeline_read), "--reports", str(reports_write)]
        if suspects:
            command.append("--suspects")
        for worker in self._lost:
            command += ["--lost", worker]
        self._lost.clear()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=(lifeline_read, reports_write),
            start_new_session=True,
        )
        os.close(lifeline_read)
        os.close(reports_write)
        child = Child(process, lifeline, suspects)
        threading.Thread(target=self._read_reports, args=(child, reports), daemon=True).start()
        return child

    def _read_reports(self, child: Child, reports: int) -> None:
        with open(reports, encoding="utf-8") as lines:
            for line in lines:
                report = json.loads(line)
                child.worker = report.get("worker", child.worker)
                if report.get("suspects"):
                    self._suspects_seen = True

    def _ended(self, child: Child) -> int:
        """A child has ended; the exit code that counts."""
        code = child.process.returncode
        self._children.remove(child)
        os.close(child.lifeline)
        if code == RECYCLE:
            return 0
        if code == 0:
            if not child.suspects:
                self._wanted -= 1
            return 0
        logger.error("worker process %s ended with code %s", child.process.pid, code)
        if child.worker:
            self._lost.append(child.worker)
        if time.monotonic() - child.started_at > 60:
            self._crashes = 0
        self._crashes += 1
        backoff = min(LONGEST_BACKOFF, 0.1 * 2.0 ** min(self._crashes, 10))
        self._start_after = time.monotonic() + backoff
        return 0

    def _stop(self) -> int:
        """Pass the stop on, wait for the children, kill what does not end in time."""
        for child in self._children:
            child.process.send_signal(signal.SIGTERM)
        told, deadline = 1, time.monotonic() + self._grace + 8.0
        while any(child.process.poll() is None for child in self._children):
            if len(self._signals) > told:
                told = len(self._signals)
                for child in self._children:
                    child.process.send_signal(signal.SIGTERM)
            if time.monotonic() > deadline:
                for child in self._children:
                    child.process.kill()
            time.sleep(0.02)
        codes = [abs(child.process.returncode) for child in self._children]
        return max(code if code != RECYCLE else 0 for code in [*codes, 0])
