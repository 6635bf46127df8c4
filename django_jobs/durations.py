"""Durations given by people: a number of seconds or a ``timedelta``."""

from __future__ import annotations

import math
from datetime import timedelta

LONGEST = 100 * 365.25 * 86_400.0
"""A hundred years, in seconds. Databases cannot add much more than that to a date."""


def seconds(value: object) -> float | None:
    """``value`` in seconds, or ``None`` when it is no finite number that is at least 0."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
