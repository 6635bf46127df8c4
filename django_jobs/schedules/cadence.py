"""When a schedule is due: a cron expression in a time zone, or a fixed interval.

Every instant that goes in or comes out is aware. Occurrences are whole seconds in UTC, so that an
occurrence is the same text in every process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from django_jobs.errors import DeclarationError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

PROBE = timedelta(hours=6)
"""How far apart a zone's offset is looked up; no zone changes its clocks twice within it."""


class Cadence(Protocol):
    """When something is due again and again. ``str`` of it is what the schedule's row stores."""

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which its occurrences are shown and handed to the job."""

    def after(self, instant: datetime) -> datetime:
        """The first occurrence later than ``instant``."""


_UTC_ZONE = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class Every:
    """Every so many seconds of elapsed time, counted from 1970-01-01 00:00 UTC.

    Counted from a fixed moment and not from a start, so that restarts do not put it off.
    """

    seconds: int
    zone: ZoneInfo = _UTC_ZONE

    def after(self, instant: datetime) -> datetime:
        """The first multiple of the interval later than ``instant``."""
        step = timedelta(seconds=self.seconds)
        return EPOCH + ((instant - EPOCH) // step + 1) * step

    def __str__(self) -> str:
        return f"every {self.seconds} s"


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression of five fields in a time zone.

    Where clocks change, an expression that names its hours is due once in an hour that comes
    twice, the first time, and at the first valid moment after an hour that does not exist. One
    whose hour field begins with ``*`` goes by what the clock on the wall shows, which is each real
    hour for ``0 * * * *``.
    """

    text: str
    zone: ZoneInfo
    _names_hours: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names_hours", not self.text.split()[1].startswith("*"))

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo, what: str) -> Cron:
        """Raises ``DeclarationError``, naming ``what``, for an expression that can never be due."""
        plain = MACROS.get(text.strip().lower(), text)
        fields = plain.split()
        if plain.lstrip().startswith("@"):
            raise DeclarationError(f"{what}: {text!r} is none of {', '.join(MACROS)}.")
        if len(fields) != 5:
            raise DeclarationError(
                f"{what}: {text!r} has {len(fields)} fields, not 5 (minute hour day month "
                'weekday). Write for example "0 3 * * *"; for seconds use every=.'
            )
        try:
            made = cls(" ".join(fields), zone)
            next(CronSim(made.text, datetime(2024, 1, 1)))
        except CronSimError as error:
            raise DeclarationError(f"{what}: {text!r}: {_explained(error)}") from error
        except StopIteration:
            raise DeclarationError(
                f"{what}: {text!r} is not due once in 50 years. Correct its days and months."
            ) from None
        return made

    def after(self, instant: datetime) -> datetime:
        """The first occurrence later than ``instant``."""
        if self._names_hours:
            return self._after_by_name(instant)
        return self._after_by_clock(instant)

    def __str__(self) -> str:
        return f"{self.text} {self.zone.key}"

    def _after_by_name(self, instant: datetime) -> datetime:
        for wall in self._walls(_wall(instant, self.zone)):
            found = _first_instant(wall, self.zone)
            # Within a repeated hour the wall clock shows times whose turn has been.
            if found > instant:
                return found
        raise AssertionError("parse() has seen that there is one")

    def _after_by_clock(self, instant: datetime) -> datetime:
        """Within a time of one offset the wall clock runs evenly; from change to change of it."""
        while True:
            offset = _offset(instant, self.zone)
            wall = next(self._walls(_wall(instant, self.zone)))
            found = wall.replace(tzinfo=UTC) - offset
            change = _next_change(instant, found, self.zone)
            if change is None:
                return found
            if self.matches(_wall(change, self.zone)):
                return change
            instant = change

    def matches(self, wall: datetime) -> bool:
        """Whether the expression is due when a clock on the wall shows ``wall``."""
        return next(self._walls(wall - SECOND)) == wall

    def _walls(self, wall: datetime) -> Iterator[datetime]:
        # Without a zone: the library's own walk over zones takes whole hours for granted, and
        # loses half an hour of Lord Howe's.
        return CronSim(self.text, wall)


def _explained(error: CronSimError) -> str:
    return (
        f"{str(error).lower()}. Fields are numbers, names (MON, JAN), lists (1,15), ranges (1-5) "
        "and steps (*/10), in the order minute hour day month weekday."
    )


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _first_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """When clocks first show ``wall``; for a time that they leave out, when they go on."""
    while True:
        found = wall.replace(tzinfo=zone).astimezone(UTC)
        if _wall(found, zone) == wall:
            return found
        wall = wall.replace(second=0) + MINUTE


def _next_change(start: datetime, end: datetime, zone: ZoneInfo) -> datetime | None:
    """The first moment of another offset in ``(start, end]``, to the second."""
    offset, low = _offset(start, zone), start.replace(microsecond=0)
    while low < end:
        high = min(low + PROBE, end)
        if _offset(high, zone) != offset:
            while high - low > SECOND:
                middle = (low + (high - low) / 2).replace(microsecond=0)
                if _offset(middle, zone) == offset:
                    low = middle
                else:
                    high = middle
            return high
        low = high
    return None


def latest(cadence: Cadence, after: datetime, until: datetime, count: int) -> list[datetime]:
    """The last ``count`` occurrences in ``(after, until]``, oldest first.

    However long that time is: it is looked at from its end, in windows that double.
    """
    window = MINUTE
    while True:
        start = max(after, until - window)
        found = deque(between(cadence, start, until), maxlen=count)
        if len(found) == count or start == after:
            return list(found)
        window *= 2


def between(cadence: Cadence, after: datetime, until: datetime) -> Iterator[datetime]:
    """The occurrences in ``(after, until]``."""
    while (after := cadence.after(after)) <= until:
        yield after
