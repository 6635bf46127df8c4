"""When schedules are due, above all where clocks change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from django_jobs.errors import DeclarationError
from django_jobs.schedules.cadence import MACROS, Cron, Every, between, latest
from django_jobs.schedules.catching_up import due

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

# zone, when its clocks change, from which offset to which (minutes), and for expressions what is
# due within a day of that: the local day and time, and the instant.
CHANGES = [
    ("America/New_York", "2026-03-08 07:00", -300, -240, {
        "30 2 * * *": ["03-07 07:30", "03-08 07:00", "03-09 06:30"],
        "0,30 2 * * *": ["03-07 07:00", "03-07 07:30", "03-08 07:00"],
        "4 16 * * *": ["03-07 21:04", "03-08 20:04"],
        "0 */2 * * 0": [f"03-08 {h:02}:00" for h in (5, 8, 10, 12, 14, 16, 18, 20, 22)],
    }),
    ("America/New_York", "2026-11-01 06:00", -240, -300, {
        "30 1 * * *": ["10-31 05:30", "11-01 05:30"],
        "0 2 * * *": ["10-31 06:00", "11-01 07:00"],
        "*/30 1 * * *": ["10-31 05:00", "10-31 05:30", "11-01 05:00", "11-01 05:30"],
        "0 * 1 * *": [f"11-01 {h:02}:00" for h in range(4, 24)],
    }),
    ("Europe/Rome", "2026-03-29 01:00", 60, 120, {
        "30 2 * * *": ["03-28 01:30", "03-29 01:00", "03-30 00:30"],
        "0 3 * * *": ["03-28 02:00", "03-29 01:00"],
        "0 2,3 * * 0": ["03-29 01:00"],
    }),
    ("Europe/Paris", "2026-10-25 01:00", 120, 60, {
        "30 2 * * *": ["10-24 00:30", "10-25 00:30"],
        "0 * 25 * *": ["10-24 22:00", "10-24 23:00"] + [f"10-25 {h:02}:00" for h in range(23)],
    }),
    ("Europe/London", "2026-03-29 01:00", 0, 60, {
        "15 1 * * *": ["03-28 01:15", "03-29 01:00", "03-30 00:15"],
    }),
    ("America/Santiago", "2026-09-06 04:00", -240, -180, {
        "0 0 * * *": ["09-05 04:00", "09-06 04:00", "09-07 03:00"],
        "30 0 * * *": ["09-05 04:30", "09-06 04:00", "09-07 03:30"],
        "*/15 0 6 * *": ["09-06 04:00"],
    }),
    ("America/Santiago", "2026-04-05 03:00", -180, -240, {
        "30 23 * * *": ["04-04 02:30", "04-05 02:30"],
        "0 0 * * *": ["04-04 03:00", "04-05 04:00"],
    }),
    ("Africa/Cairo", "2026-04-23 22:00", 120, 180, {
        "0 0 * * *": ["04-22 22:00", "04-23 22:00", "04-24 21:00"],
    }),
    ("Africa/Cairo", "2026-10-29 21:00", 180, 120, {
        "0 0 * * *": ["10-28 21:00", "10-29 22:00"],
        "15 23 * * *": ["10-29 20:15", "10-30 21:15"],
    }),
    ("Asia/Beirut", "2026-03-28 22:00", 120, 180, {
        "0 0 * * *": ["03-27 22:00", "03-28 22:00", "03-29 21:00"],
        "59 0 * * 0": ["03-28 22:00"],
    }),
    ("Asia/Beirut", "2026-10-24 21:00", 180, 120, {
        "0 0 * * *": ["10-23 21:00", "10-24 22:00"],
    }),
    ("Australia/Lord_Howe", "2026-10-03 15:30", 630, 660, {
        "15 2 * * *": ["10-02 15:45", "10-03 15:30", "10-04 15:15"],
        "*/10 3 4 * *": [f"10-03 16:{m:02}" for m in range(0, 60, 10)],
        "*/20 2 4 * *": ["10-03 15:30", "10-03 15:40"],
    }),
    ("Australia/Lord_Howe", "2026-04-04 15:00", 660, 630, {
        "45 1 * * *": ["04-03 14:45", "04-04 14:45", "04-05 15:15"],
        "*/15 2 5 * *": ["04-04 15:30", "04-04 15:45", "04-04 16:00", "04-04 16:15"],
    }),
    ("Australia/Sydney", "2026-10-03 16:00", 600, 660, {
        "30 2 * * *": ["10-02 16:30", "10-03 16:00", "10-04 15:30"],
    }),
    ("Pacific/Auckland", "2026-04-04 14:00", 780, 720, {
        "30 2 * * *": ["04-03 13:30", "04-04 13:30"],
    }),
    ("Pacific/Chatham", "2026-09-26 14:00", 765, 825, {
        "0 3 * * *": ["09-25 14:15", "09-26 14:00", "09-27 13:15"],
    }),
    ("America/St_Johns", "2026-03-08 05:30", -210, -150, {
        "0 2 * * *": ["03-07 05:30", "03-08 05:30", "03-09 04:30"],
    }),
    ("America/Havana", "2026-11-01 05:00", -240, -300, {
        "30 0 * * *": ["10-31 04:30", "11-01 04:30"],
    }),
    ("Asia/Jerusalem", "2026-03-27 00:00", 120, 180, {
        "30 2 * * 5": ["03-27 00:00"],
    }),
    ("Africa/Casablanca", "2026-02-15 02:00", 60, 0, {
        "30 2 * * *": ["02-14 01:30", "02-15 01:30"],
    }),
    ("Africa/Casablanca", "2026-03-22 02:00", 0, 60, {
        "30 2 * * *": ["03-21 02:30", "03-22 02:00", "03-23 01:30"],
    }),
    ("Antarctica/Troll", "2026-03-29 01:00", 0, 120, {
        "0 2 * * *": ["03-28 02:00", "03-29 01:00", "03-30 00:00"],
    }),
    ("Pacific/Apia", "2011-12-30 10:00", -600, 840, {
        "0 12 30 * *": ["12-30 10:00"],
        "0 12 * * *": ["12-29 22:00", "12-30 10:00", "12-30 22:00"],
    }),
]  # fmt: skip


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[1][:10]}")
def test_what_is_due_where_clocks_change(
    change: tuple[str, str, int, int, dict[str, list[str]]],
) -> None:
    name, at, before, after, expected = change
    zone, moment = ZoneInfo(name), utc(at)
    # The time-zone database says the same of this change as the table does.
    offsets = [(moment - timedelta(seconds=s)).astimezone(zone).utcoffset() for s in (1, 0)]
    assert offsets == [timedelta(minutes=before), timedelta(minutes=after)]
    for text, instants in expected.items():
        cron = Cron.parse(text, zone, "test")
        days = [utc(f"{at[:4]}-{instant}") for instant in instants]
        end = days[-1] + timedelta(seconds=1)
        assert list(between(cron, days[0] - MINUTE, end)) == days, text


class Wall:
    """What a clock on a wall shows, minute by minute; an oracle without any library of crons."""

    def __init__(self, zone: ZoneInfo, start: datetime, end: datetime) -> None:
        self.shown = []
        while start <= end:
            self.shown.append((start, start.astimezone(zone).replace(tzinfo=None, fold=0)))
            start += MINUTE

    def daily(self, hour: int, minute: int) -> Iterator[datetime]:
        """The first moment at which each day's time is shown or has been left out."""
        seen: set[datetime] = set()
        for (_, wall), (instant, following) in pairwise(self.shown):
            days = range((following.date() - wall.date()).days + 1)
            turns = {wall.replace(hour=hour, minute=minute) + day * DAY for day in days}
            come = {turn for turn in turns if turn == following or wall < turn < following}
            if come - seen:
                yield instant
            seen |= come

    def hourly(self, minute: int) -> Iterator[datetime]:
        return (instant for instant, wall in self.shown[1:] if wall.minute == minute)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[1][:10]}")
def test_around_a_change_everything_is_due_when_a_clock_on_the_wall_shows_it(
    change: tuple[str, str, int, int, dict[str, list[str]]],
) -> None:
    zone, begin = ZoneInfo(change[0]), utc(change[1]) - 30 * HOUR
    end = begin + 60 * HOUR
    wall = Wall(zone, begin, end)
    for hour, minute in ((0, 0), (1, 45), (2, 30), (23, 30)):
        cron = Cron.parse(f"{minute} {hour} * * *", zone, "test")
        assert list(between(cron, begin, end)) == list(wall.daily(hour, minute))
    cron = Cron.parse("20 * * * *", zone, "test")
    assert list(between(cron, begin, end)) == list(wall.hourly(20))


@pytest.mark.parametrize("text", ["30 1 * * *", "*/20 * * * *", "*/15 1-2 * * *", "0 */3 * * *"])
def test_the_next_occurrence_is_later_and_the_same_from_wherever_it_is_asked(text: str) -> None:
    for name, at, *_ in CHANGES:
        cron = Cron.parse(text, ZoneInfo(name), "test")
        begin, end = utc(at) - timedelta(hours=4), utc(at) + timedelta(hours=4)
        known = [*between(cron, begin, end), cron.after(end)]
        assert known == sorted(set(known))
        instant = begin
        while instant < end:
            assert cron.after(instant) == next(one for one in known if one > instant)
            instant += timedelta(minutes=19, microseconds=10)


def test_around_a_turn_of_day_or_year_the_next_occurrence_is_never_now() -> None:
    for day in ("2025-12-31", "2026-02-28", "2028-02-28", "2028-02-29", "2026-03-28"):
        turn = utc(f"{day} 00:00") + DAY
        for cadence in (Cron.parse("* * * * *", ZoneInfo("UTC"), "t"), Every(60)):
            for milliseconds in range(-10, 11):
                now = turn + timedelta(milliseconds=milliseconds)
                wait = cadence.after(now) - now
                assert timedelta(0) < wait <= MINUTE


def test_intervals_go_by_elapsed_time_from_a_fixed_moment() -> None:
    every = Every(5400)
    assert every.after(utc("2026-03-29 00:59")) == utc("2026-03-29 01:30")
    assert every.after(utc("2026-03-29 01:30")) == utc("2026-03-29 03:00")
    week = Every(7 * 86_400)
    for restart in range(14):
        found = week.after(utc("2026-06-01 10:00") + restart * timedelta(hours=12))
        assert found in (utc("2026-06-04 00:00"), utc("2026-06-11 00:00"))


def test_the_latest_occurrences_are_found_from_the_end_however_long_the_time() -> None:
    minutes = Cron.parse("* * * * *", ZoneInfo("Europe/Rome"), "t")
    yearly = Cron.parse("0 0 29 2 *", ZoneInfo("Europe/Rome"), "t")
    begin, end = utc("2000-01-01 00:00"), utc("2026-06-01 00:00:30")
    assert latest(minutes, begin, end, 2) == [utc("2026-05-31 23:59"), utc("2026-06-01 00:00")]
    assert latest(yearly, begin, end, 1) == [utc("2024-02-28 23:00")]
    assert latest(minutes, end, end, 1) == []
    assert len(latest(yearly, begin, end, 100)) == 7


def test_what_is_passed_over_is_told_with_its_ends() -> None:
    hourly, begin, end = Every(3600), utc("2026-01-01 00:00"), utc("2026-01-01 05:30")
    hours = [utc(f"2026-01-01 0{hour}:00") for hour in range(1, 6)]
    for missed, most, run, first, last in (
        ("skip", 10, hours[4:], 0, 3),
        ("once", 10, hours[:1], 1, 4),
        ("all", 2, hours[3:], 0, 2),
    ):
        found = due(hourly, begin, end, missed, most)  # type: ignore[arg-type]
        assert found is not None and found.passed is not None
        assert (found.run, found.through) == (run, hours[4])
        passed = found.passed
        assert (passed.first, passed.last) == (hours[first], hours[last])
        assert (passed.count, passed.is_more) == (last - first + 1, False)
    whole = due(hourly, begin, end, "all", 10)
    assert whole is not None and whole.run == hours and whole.passed is None
    assert due(hourly, end, begin, "all", 10) is None
    for missed in ("skip", "once", "all"):
        years = due(hourly, begin, utc("2030-01-01 00:00"), missed, 1)  # type: ignore[arg-type]
        assert years is not None and years.passed is not None
        assert (years.passed.count, years.passed.is_more) == (1000, True)
        assert years.passed.last == utc("2030-01-01 00:00") - (missed != "once") * HOUR


# --- the grammar ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("0 12 * * 7", "2026-01-04 12:00"),  # 0 and 7 are both Sunday.
        ("* * * * 0", "2026-01-04 00:00"),
        ("0 0 13 * 5", "2026-01-02 00:00"),  # A 13th or a Friday.
        ("0 0 13 * FRI", "2026-01-02 00:00"),
        ("0 0 */13 * 5", "2026-02-27 00:00"),  # After a star: a Friday that is a 1st, 14th or 27th.
        ("5 4 1 jan *", "2026-01-01 04:05"),
        ("0 0 L 2 *", "2026-02-28 00:00"),
        ("0 9 * * MON#2", "2026-01-12 09:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("@daily", "2026-01-02 00:00"),
        ("@Hourly", "2026-01-01 01:00"),
        ("  0  6 * * 1-5 ", "2026-01-01 06:00"),
    ],
)
def test_expressions_mean_what_cron_s_manual_says(text: str, first: str) -> None:
    cron = Cron.parse(text, ZoneInfo("UTC"), "test")
    assert cron.after(utc("2026-01-01 00:00")) == utc(first)


@pytest.mark.parametrize(
    "text",
    [
        *("*/1", "", "   ", "*/0 * * * *", "60 * * * *", "* 24 * * *", "0 0 30 2 *"),
        *("5-1 * * * *", "5x * * * *", "0 0 31 4,6 *", "* * * * * *", "0 3 * * * 0 4 * * *"),
        *("0 0 ? * *", "0 0 * * MOO", "@never", "-1 * * * *", "0 0 0 * *", "1,, * * * *"),
        *("٣ * * * *", "0 0 * 13 *", "0 0 * * 8"),
    ],
)
def test_an_expression_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(DeclarationError, match=r"^test: "):
        Cron.parse(text, ZoneInfo("UTC"), "test")


def test_every_macro_is_an_expression() -> None:
    for macro in MACROS:
        Cron.parse(macro, ZoneInfo("UTC"), "test")
