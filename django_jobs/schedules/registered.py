"""Every schedule that this process has declared, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from django_jobs.errors import DeclarationError
from django_jobs.schedules.timetable import Timetable

_timetables: dict[str, Timetable] = {}


def timetables() -> Mapping[str, Timetable]:
    """All schedules, sorted by name: the same order on every machine."""
    return MappingProxyType(dict(sorted(_timetables.items())))


def timetable(name: str) -> Timetable | None:
    """The schedule of this name, if this process has declared one."""
    return _timetables.get(name)


def register(declared: Timetable) -> None:
    """Adds a schedule; raises ``DeclarationError`` when another one has its name (which stays).

    A job whose module is loaded again brings its schedules anew.
    """
    job = declared.definition
    for name, other in list(_timetables.items()):
        if other.definition.name == job.name and other.definition is not job:
            del _timetables[name]
    seated = _timetables.get(declared.name)
    if seated is not None:
        raise DeclarationError(
            f"Two schedules are called {declared.name!r}, of {seated.definition.name} and of "
            f'{job.name}. Give this one a name of its own: name="{declared.name}-2".'
        )
    _timetables[declared.name] = declared
