"""Lanes: of several pieces of work on one thing, the newest wins.

``Lane`` is the primitive, for any work. ``advice`` is what the job system asks; it never raises and
never decides.
"""

from django_jobs.lanes.lane import Lane
from django_jobs.lanes.results import (
    Claimed,
    Displaced,
    Held,
    Holder,
    Release,
    Released,
    Started,
    Superseded,
    Usurped,
)

__all__ = [
    "Claimed",
    "Displaced",
    "Held",
    "Holder",
    "Lane",
    "Release",
    "Released",
    "Started",
    "Superseded",
    "Usurped",
]
