"""What the bodies of ``slow`` and ``deaf`` noted, read as runs with a start and an end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from tests.app.models import Ledger


@dataclass
class Ran:
    """One run of a body. ``end`` is ``None`` when it was killed or stopped on its way."""

    pid: int
    start: datetime
    end: datetime | None = None


def runs(alias: str = "default") -> dict[str, list[Ran]]:
    """Every run by job id, each job's in the order of their starts."""
    found: dict[str, list[Ran]] = defaultdict(list)
    for line in Ledger.objects.using(alias).order_by("at", "id"):
        if line.note.startswith("start"):
            found[line.job_key].append(Ran(line.pid, line.at))
        elif line.note.startswith("end"):
            began = [r for r in found[line.job_key] if r.pid == line.pid and r.end is None]
            began[-1].end = line.at
    return found


def overlapping(killed: dict[int, datetime], alias: str = "default") -> list[str]:
    """Jobs of which two runs were going on at one time. ``killed``: when which process died."""
    found = []
    for job, ran in runs(alias).items():
        for earlier, later in pairwise(ran):
            ended = earlier.end or killed.get(earlier.pid)
            if ended is None or later.start < ended:
                found.append(job)
    return found
