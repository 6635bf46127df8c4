"""The decorator. Whatever can be known to be wrong is refused when the module loads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar, get_args
from uuid import UUID
from zoneinfo import ZoneInfo

from django_jobs.definitions import Definition
from django_jobs.durations import seconds
from django_jobs.errors import DeclarationError, KeyRefused, PayloadError
from django_jobs.keys import MAX_NAME, plain_text
from django_jobs.schedules.cadence import Cadence, Cron, Every
from django_jobs.schedules.registered import register
from django_jobs.schedules.timetable import (
    OCCURRENCE,
    TENANT,
    Missed,
    Overlap,
    Timetable,
    as_date,
    as_datetime,
    as_text,
)

P = ParamSpec("P")
R = TypeVar("R")

MAX_CATCH_UP = 1000
MAX_CRON = 200
LONGEST_INTERVAL = 366 * 86_400
DEFAULT_CATCH_UP = 10

_SAMPLE = datetime(2024, 1, 1, tzinfo=UTC)
_SAMPLE_LIMIT = 1 << 30
_TENANTS = ("tenant", 1, UUID(int=1))
"""What a tenant may be: texts, and keys of rows."""


def schedule(
    cron: str | None = None,
    /,
    *,
    every: float | timedelta | None = None,
    tz: str | None = None,
    missed: Missed = "skip",
    max_catch_up: int | None = None,
    overlap: Overlap = "allow",
    jitter: float | timedelta = 0,
    per_tenant: Callable[[], Iterable[Any]] | None = None,
    arguments: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Callable[[Definition[P, R]], Definition[P, R]]:
    """Has a job run at set times. Stands above ``@job``, once for each schedule of it.

    - ``cron``: five fields (``"30 2 * * 1-5"``), or ``@hourly`` and the like, in the time zone
      ``tz`` (an IANA name, ``"Europe/Rome"``); or ``every``: seconds or a ``timedelta``.
    - ``missed``: what happens to occurrences that fell due while no worker ran. ``"skip"``: the
      latest runs, the others do not. ``"once"``: the earliest runs for all of them. ``"all"``:
      each runs, but no more than the latest ``max_catch_up`` (10).
    - ``overlap``: what happens while an earlier occurrence has not ended. ``"allow"``: both run.
      ``"skip"``: the new one does not. ``"queue_one"``: one waits until the earlier one has
      ended, others do not run. ``"supersede"``: the earlier one is ended.
    - ``jitter``: seconds or a ``timedelta`` within which the job is due after its occurrence; how
      long after is the same at each occurrence.
    - ``per_tenant``: a function that returns tenants; each occurrence is one job for each.
    - ``arguments``: of the job, by name. ``"{occurrence}"`` becomes the occurrence (as a
      ``datetime``, ``date`` or text, whatever the job takes), ``"{tenant}"`` the tenant.
    - ``name``: what its row carries; by default the job's. Further schedules of a job need one.

    Raises ``DeclarationError``, always with the edit that mends it.
    """
    if callable(cron) or isinstance(cron, Definition):
        raise DeclarationError(
            f'{cron!r}: @schedule needs parentheses. Write @schedule("0 3 * * *", tz="UTC").'
        )

    def decorate(definition: Definition[P, R]) -> Definition[P, R]:
        what = f"{_name_of(definition)}: @schedule"
        _check_policies(what, missed, overlap, definition)
        _check_tenants(what, per_tenant, arguments or {}, definition)
        made = Timetable(
            name=_name(name, definition, what),
            definition=definition,
            cadence=_cadence(cron, every, tz, what),
            missed=missed,
            max_catch_up=_max_catch_up(max_catch_up, missed, what),
            overlap=overlap,
            jitter=_jitter(jitter, what),
            per_tenant=per_tenant,
            arguments=dict(arguments or {}),
        )
        register(_with_fitting_arguments(made, what))
        return definition

    return decorate


def _name_of(definition: Any) -> str:
    if not isinstance(definition, Definition):
        path = (
            f"{getattr(definition, '__module__', '?')}.{getattr(definition, '__qualname__', '?')}"
        )
        raise DeclarationError(f"{path}: @schedule stands above @job. Swap the two, or add @job.")
    return definition.name


def _name(given: str | None, definition: Definition[..., Any], what: str) -> str:
    if given is None:
        return definition.name
    try:
        return plain_text(given, f"{what}: name", chars=MAX_NAME)
    except KeyRefused as error:
        raise DeclarationError(f"{error} Write a short plain text.") from error


def _cadence(cron: Any, every: Any, tz: Any, what: str) -> Cadence:
    if (cron is None) == (every is None):
        raise DeclarationError(
            f'{what}: when? Write either "0 3 * * *" with tz=, or every=timedelta(hours=1).'
        )
    if cron is None:
        if tz is not None:
            raise DeclarationError(f"{what}: every= goes by elapsed time in any zone. Drop tz=.")
        return Every(_whole_seconds(every, f"{what}: every", 1, LONGEST_INTERVAL))
    if not isinstance(cron, str):
        raise DeclarationError(f'{what}: {cron!r} is no text. Write for example "0 3 * * *".')
    if len(cron) > MAX_CRON:
        raise DeclarationError(
            f"{what}: the expression has {len(cron)} characters, more than {MAX_CRON}. Use ranges "
            "and steps, or two schedules."
        )
    return Cron.parse(cron, _zone(tz, what), what)


def _zone(tz: Any, what: str) -> ZoneInfo:
    """A zone that people live in, or UTC: one of a fixed offset would miss changes of clocks."""
    example = 'Write for example tz="Europe/Rome", or tz="UTC".'
    if not isinstance(tz, str) or not tz:
        raise DeclarationError(f"{what}: in which time zone? {example}")
    if tz != "UTC" and ("/" not in tz or tz.startswith("Etc/")) and tz != "Etc/UTC":
        raise DeclarationError(f"{what}: tz={tz!r} names no place. {example}")
    try:
        return ZoneInfo(tz)
    except (ValueError, OSError, KeyError):
        raise DeclarationError(f"{what}: there is no time zone {tz!r}. {example}") from None


def _whole_seconds(value: Any, what: str, least: int, most: int) -> int:
    length = seconds(value)
    if length is None or not least <= length <= most or length != int(length):
        raise DeclarationError(
            f"{what}={value!r}; write whole seconds from {least} to {most:,}, or such a timedelta."
        )
    return int(length)


def _jitter(value: Any, what: str) -> int:
    return _whole_seconds(value, f"{what}: jitter", 0, LONGEST_INTERVAL)


def _max_catch_up(value: Any, missed: str, what: str) -> int:
    if value is None:
        return DEFAULT_CATCH_UP
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= MAX_CATCH_UP:
        raise DeclarationError(
            f"{what}: max_catch_up={value!r}; write a whole number from 1 to {MAX_CATCH_UP:,}."
        )
    if missed != "all":
        raise DeclarationError(
            f'{what}: max_catch_up= means nothing with missed={missed!r}. Write missed="all".'
        )
    return int(value)


def _check_policies(what: str, missed: Any, overlap: Any, definition: Definition[..., Any]) -> None:
    for field, value, known in (
        ("missed", missed, get_args(Missed)),
        ("overlap", overlap, get_args(Overlap)),
    ):
        if value not in known:
            choices = ", ".join(f'"{choice}"' for choice in known)
            raise DeclarationError(f"{what}: {field}={value!r}; write one of {choices}.")
    if overlap == "supersede" and definition.lane is not None:
        raise DeclarationError(
            f"{what}: the job's lane decides what supersedes what. Drop overlap=, or lane=."
        )


def _check_tenants(
    what: str, per_tenant: Any, arguments: Any, definition: Definition[..., Any]
) -> None:
    if not isinstance(arguments, Mapping):
        raise DeclarationError(f"{what}: arguments={arguments!r}; write a dict by argument name.")
    takes_tenant = any(isinstance(v, str) and TENANT in v for v in arguments.values())
    if per_tenant is None:
        if takes_tenant:
            raise DeclarationError(f"{what}: whose {TENANT}? Add per_tenant=a_function.")
        return
    if not callable(per_tenant):
        raise DeclarationError(
            f"{what}: per_tenant={per_tenant!r}; write a function that returns the tenants."
        )
    if definition.tenant is not None and not takes_tenant:
        raise DeclarationError(
            f"{what}: the job derives its tenant from its arguments, and no argument says which. "
            f'Add arguments={{"tenant": "{TENANT}"}}, by the name of that argument.'
        )


def _with_fitting_arguments(made: Timetable, what: str) -> Timetable:
    """``made``, its occurrence as the first of datetime, date and text that the job takes."""
    takes_occurrence = OCCURRENCE in [v for v in made.arguments.values() if isinstance(v, str)]
    forms = (as_datetime, as_date, as_text) if takes_occurrence else (as_datetime,)
    tenants = (None,) if made.per_tenant is None else _TENANTS
    faults: list[PayloadError] = []
    for shown, tenant in itertools.product(forms, tenants):
        tried = replace(made, shown=shown)
        try:
            arguments = made.definition.arguments
            arguments.encode(arguments.bind((), tried.call(_SAMPLE, tenant)), _SAMPLE_LIMIT)
            return tried
        except PayloadError as error:
            faults.append(error)
    raise DeclarationError(f"{what}: {faults[0]} Correct arguments=.") from faults[0]
