"""Real ``manage.py runworker`` processes for tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest
from django.conf import settings

ROOT = Path(__file__).resolve().parent.parent
STARTED = pytest.StashKey[list["Worker"]]()
SHOWN = 20_000  # characters of output below a failed test


class Worker:
    """One started worker with all the processes below it. Its output is in ``log``."""

    def __init__(self, arguments: tuple[str, ...], jobs: dict[str, Any], log: Path) -> None:
        self.arguments, self.log = arguments, log
        self._family: dict[int, psutil.Process] = {}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), *arguments],
                cwd=ROOT,
                env=environment(jobs),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._family[self.pid] = psutil.Process(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def children(self) -> list[psutil.Process]:
        """The processes below this one that live now."""
        return [p for p in self._remember() if p.pid != self.pid and _lives(p)]

    def signal(self, number: int) -> None:
        """Send ``number`` to the started process only."""
        self._remember()
        self._process.send_signal(number)

    def stop(self, timeout: float = 40.0) -> int:
        """SIGTERM, and the exit status once it has ended."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        """SIGKILL for the whole tree at once, as a machine that loses power."""
        family = self._remember()
        for process in family:
            _quietly(process.suspend)  # nothing may react to a neighbour's death
        for process in [*family, *self._remember()]:
            _quietly(process.kill)
        self._process.wait(10)
        psutil.wait_procs(family, 10)

    def freeze(self) -> None:
        """SIGSTOP for the whole tree."""
        for process in self._remember():
            _quietly(process.suspend)

    def thaw(self) -> None:
        """SIGCONT for the whole tree."""
        for process in self._remember():
            _quietly(process.resume)

    def wait(self, timeout: float = 60.0) -> int:
        """The exit status. Fails the test when the worker does not end in time."""
        deadline = time.monotonic() + timeout
        while self.running:
            self._remember()
            if time.monotonic() > deadline:
                pytest.fail(f"{self} did not end within {timeout} s")
            time.sleep(0.02)
        return int(self._process.returncode)

    def wait_for(self, text: str, timeout: float = 30.0) -> None:
        """Wait until the output contains ``text``."""
        deadline = time.monotonic() + timeout
        while text not in self.output:
            if not self.running and text not in self.output:
                pytest.fail(f"{self} ended with {self._process.returncode} before {text!r}")
            if time.monotonic() > deadline:
                pytest.fail(f"{self} did not print {text!r} within {timeout} s")
            time.sleep(0.02)

    def _remember(self) -> list[psutil.Process]:
        """Every process seen below the started one so far.

        Children have sessions of their own and outlive their parent, after which nothing leads to
        them any more: so they are looked up while it lives and kept.
        """
        for process in list(self._family.values()):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._family.update({c.pid: c for c in process.children(recursive=True)})
        return list(self._family.values())

    def __str__(self) -> str:
        return f"`manage.py {' '.join(self.arguments)}` (pid {self.pid})"


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _quietly(act: Any) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        act()


def environment(jobs: dict[str, Any] | None = None) -> dict[str, str]:
    """The environment of a process on the test databases, with this test's ``DJANGO_JOBS``."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "TEST_DJANGO_JOBS": json.dumps({**settings.DJANGO_JOBS, **(jobs or {})}),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }


class WorkerFactory(Protocol):
    """``worker("--queues", "a", LEASE=2)``: options as words, ``DJANGO_JOBS`` keys by name."""

    def __call__(self, *arguments: str, command: str = "runworker", **jobs: Any) -> Worker: ...


@pytest.fixture
def worker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerFactory]:
    """Starts workers that see the test's databases and settings, and ends them with the test.

    Take ``jobs_alias`` too (named before ``worker``) to run on both engines.
    """
    if "jobs_alias" in request.fixturenames:
        request.getfixturevalue("jobs_alias")
    else:
        request.getfixturevalue("transactional_db")
    started = request.node.stash[STARTED] = []

    def start(*arguments: str, command: str = "runworker", **jobs: Any) -> Worker:
        log = tmp_path / f"worker-{len(started) + 1}.log"
        started.append(Worker((command, *arguments), jobs, log))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def attach_output(item: pytest.Item, report: pytest.TestReport) -> None:
    """Show what the test's workers printed below its failure."""
    if report.when != "call" or not report.failed:
        return
    for each in item.stash.get(STARTED, []):
        report.sections.append((f"Output of {each}", each.output[-SHOWN:]))
