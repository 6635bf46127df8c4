"""A worker process for a scene."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

PATIENCE = 60.0
"""Seconds for which a scene waits for what it expects."""


class Late(Exception):
    """What a scene waited for did not come."""


@contextmanager
def worker(log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """``manage.py runworker`` for the time of the block, its output in ``log``."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "runworker", *options]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        until(lambda: "started" in log.read_text(), f"the worker's first line in {log}")
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a worker that still runs; it hands back what it has not finished."""
    if process.poll() is None:
        process.terminate()
        process.wait()


def until(happened: Callable[[], object], what: str) -> None:
    """Return when ``happened()`` is true; raises ``Late`` after a minute."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > deadline:
            raise Late(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.05)
