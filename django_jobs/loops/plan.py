"""What a worker process is told to do, and what its exit code tells the supervisor."""

from __future__ import annotations

from dataclasses import dataclass

LOOPS = ("relay", "waker", "scheduler", "worker", "janitor")
RECYCLE = 75
"""Exit code: this process wants to be replaced by a fresh one."""

ABANDONED = 70
"""Exit code: bodies were still running when the time was up; their rows were handed back."""

STUCK_GRACE = 60.0
"""How long other bodies may go on when a stuck one has its process replaced."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process is told to do. ``max_rss`` is in megabytes."""

    queues: tuple[str, ...] = ("default",)
    threads: int = 4
    async_slots: int = 20
    loops: tuple[str, ...] = LOOPS
    drain: bool = False
    max_jobs: int | None = None
    max_rss: int | None = None
    suspects: bool = False
