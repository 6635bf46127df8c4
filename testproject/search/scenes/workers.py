"""Worker processes of the demo."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

PATIENCE = 60.0
"""Seconds for which a scene waits for what it expects."""


class Late(CommandError):
    """What a scene waited for did not come."""


def manage(log: Path | None, *arguments: str) -> subprocess.Popen[bytes]:
    """``manage.py`` on the demo's database, its output added to ``log`` or dropped."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]
    with (log or Path(os.devnull)).open("a") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


@contextmanager
def worker(log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """``manage.py runworker`` for the time of the block; it begins when the worker is up."""
    before = log.stat().st_size if log.exists() else 0
    process = manage(log, "runworker", *options)
    try:
        until(lambda: b"started" in log.read_bytes()[before:], f"a worker's first line in {log}")
        yield process
    except KeyboardInterrupt:
        raise CommandError("Interrupted: the worker was stopped too.") from None
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a worker that still runs; it hands back what it has not finished."""
    if process.poll() is None:
        process.terminate()
        process.wait()


def kill(worker: str) -> None:
    """SIGKILL for the process that a job's row names; its supervisor starts another."""
    os.kill(int(worker.split(":")[1]), signal.SIGKILL)


def until(happened: Callable[[], object], what: str) -> None:
    """Return when ``happened()`` is true; raises ``Late`` after a minute."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > deadline:
            raise Late(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.05)
