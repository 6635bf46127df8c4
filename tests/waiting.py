"""Wait for something another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(happened: Callable[[], object], timeout: float = 30.0) -> None:
    """Return when ``happened()`` is true; fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not happened():
        assert time.monotonic() < deadline, f"did not happen within {timeout} s"
        time.sleep(0.005)
