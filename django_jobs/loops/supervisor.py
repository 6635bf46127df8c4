"""The supervisor: starts worker processes, replaces those that end, passes the stop on.

It opens no database connection. Children are spawned, not forked: a fork would copy the locks of
threads that other apps started. Each child is in a session of its own, so that Ctrl-C reaches
only the supervisor, and watches a pipe, so that it drains when the supervisor dies.
"""

from __future__ import annotations

import contextlib
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

from django_jobs.loops.plan import RECYCLE

logger = logging.getLogger("django_jobs.supervisor")

SECOND_SIGNAL = 0.5
"""Seconds after which another signal means: now. One Ctrl-C may be delivered more than once."""

LONGEST_BACKOFF = 30.0
KEPT_LOSSES = 50
"""Names of lost workers to remember; what older ones held has lapsed long ago."""


@dataclass(slots=True)
class Child:
    """A worker process. ``worker`` is the name it holds leases under, once it has told."""

    process: subprocess.Popen[bytes]
    lifeline: int
    suspects: bool
    started_at: float = field(default_factory=time.monotonic)
    worker: str = ""
    losses: list[str] = field(default_factory=list)
    """Lost workers that this child was told of, whose jobs it takes back."""


class Supervisor:
    """Keeps ``processes`` children running until stopped or, with ``drain``, until all is done."""

    def __init__(
        self, arguments: Sequence[str], *, processes: int, grace: float, drain: bool = False
    ) -> None:
        self._arguments, self._drain = list(arguments), drain
        self._grace = grace
        self._children: list[Child] = []
        self._signals: list[float] = []
        self._suspects_seen = False
        self._lost: list[str] = []
        self._crashes = 0
        self._start_after = 0.0
        self._wanted = processes

    def run(self) -> int:
        """Supervise; the exit code: 0, or when stopping the worst of the children's."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)
        while self._wanted or self._children:
            if self._signals:
                return self._stop()
            self._start_missing()
            for child in [c for c in self._children if c.process.poll() is not None]:
                self._ended(child)
            self._pass_on_losses()
            time.sleep(0.02)
        return 0

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
                if report.get("stuck"):
                    stuck = child.process.pid, report["stuck"]
                    logger.error("worker process %s is replaced: %s is stuck", *stuck)
                if report.get("suspects"):
                    self._suspects_seen = True

    def _pass_on_losses(self) -> None:
        """Have a living child take back what lost ones held, before their leases run out."""
        alive = [child for child in self._children if not child.suspects]
        if self._lost and alive:
            with contextlib.suppress(OSError):  # It ends just now; the next one is told.
                os.write(alive[0].lifeline, "".join(f"{w}\n" for w in self._lost).encode())
                alive[0].losses += self._lost
                self._lost = []

    def _ended(self, child: Child) -> None:
        """A child has ended: is it replaced, and who takes over what it held?"""
        code = child.process.returncode
        self._children.remove(child)
        os.close(child.lifeline)
        if code == 0 and child.suspects:
            self._suspects_seen = False
        elif code == 0 and self._drain:
            self._wanted -= 1
        if code in (0, RECYCLE):
            return
        logger.error("worker process %s ended with code %s", child.process.pid, code)
        self._lost = [*self._lost, *child.losses, child.worker][-KEPT_LOSSES:]
        self._lost = [worker for worker in dict.fromkeys(self._lost) if worker]
        if time.monotonic() - child.started_at > 60:
            self._crashes = 0
        self._crashes += 1
        backoff = min(LONGEST_BACKOFF, 0.1 * 2.0 ** min(self._crashes, 10))
        self._start_after = time.monotonic() + backoff

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
        return max(self._code(child) for child in self._children) if self._children else 0

    def _code(self, child: Child) -> int:
        code: int = child.process.returncode
        if code == RECYCLE or (code == -signal.SIGTERM and not child.worker):
            return 0  # The second: it was told to stop before it had begun.
        return abs(code)
