"""Which of the occurrences that are due run, and which are passed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from django_jobs.schedules.cadence import Cadence, between, latest
from django_jobs.schedules.timetable import Missed

COUNTED = 1000
"""Missed occurrences that are counted at most: more means the same to whoever reads it."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Occurrences that do not run. ``count`` stops at ``COUNTED``."""

    first: datetime
    last: datetime
    count: int
    is_more: bool


@dataclass(frozen=True, slots=True)
class Due:
    """``run`` happens, oldest first, ``passed`` does not; all up to ``through`` is decided."""

    run: Sequence[datetime]
    passed: Passed | None
    through: datetime


def due(
    cadence: Cadence, watermark: datetime, now: datetime, missed: Missed, most: int
) -> Due | None:
    """What to do about the occurrences in ``(watermark, now]``; ``None`` when there are none.

    ``skip`` runs the latest of them, ``once`` the earliest, ``all`` the latest ``most``. A
    clock that stands before the watermark (it was set back) has nothing due until it has
    caught up, so nothing happens twice.
    """
    last = latest(cadence, watermark, now, most if missed == "all" else 1)
    if not last:
        return None
    if missed == "once":
        first = cadence.after(watermark)
        return Due([first], _passed(cadence, first, last[-1], inclusive=True), last[-1])
    return Due(last, _passed(cadence, watermark, last[0], inclusive=False), last[-1])


def _passed(cadence: Cadence, after: datetime, end: datetime, *, inclusive: bool) -> Passed | None:
    """The occurrences in ``(after, end]``; ``end``, which is one of them, only if ``inclusive``."""
    counted = list(islice(between(cadence, after, end), COUNTED + 2))
    if counted and counted[-1] == end and not inclusive:
        counted.pop()
    if not counted:
        return None
    is_more = len(counted) > COUNTED
    if is_more or inclusive:
        last = end if inclusive else latest(cadence, after, end, 2)[0]
    else:
        last = counted[-1]
    return Passed(counted[0], last, min(len(counted), COUNTED), is_more)
