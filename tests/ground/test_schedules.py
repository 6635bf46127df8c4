"""Schedules as they are declared: whatever is wrong is refused when the module loads."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from django_jobs import PER_CALL, definitions, schedule
from django_jobs.definitions import Definition, discovery
from django_jobs.definitions import registered as jobs_registered
from django_jobs.errors import DeclarationError
from django_jobs.schedules import registered, stamp, timetable, timetables

AT = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
ROME = {"tz": "Europe/Rome"}


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is gone after it."""
    monkeypatch.setattr(jobs_registered, "_definitions", dict(jobs_registered._definitions))
    monkeypatch.setattr(registered, "_timetables", {})
    monkeypatch.setattr(discovery, "_allowed", {__name__})


def job(fn: Any = None, **options: Any) -> Definition[..., Any]:
    def nightly() -> None:
        """Takes nothing."""

    fn = fn or nightly
    options.setdefault("name", f"tests.{fn.__name__}")
    options.setdefault("idempotency_key", PER_CALL)
    return definitions.job(**options)(fn)


def refused(text: str, *args: Any, made: Any = None, **options: Any) -> str:
    with pytest.raises(DeclarationError, match=text) as caught:
        schedule(*args, **options)(made or job())
    assert not timetables()
    return str(caught.value)


def test_the_job_stays_what_it_is_and_may_have_several_schedules() -> None:
    made = job()
    assert schedule("0 3 * * *", **ROME)(made) is made
    schedule("0 5 * * 0", name="tests.weekly", **ROME)(made)
    assert list(timetables()) == ["tests.nightly", "tests.weekly"]
    first = timetable("tests.nightly")
    assert first is not None
    assert str(first.cadence) == "0 3 * * * Europe/Rome"
    assert (first.missed, first.max_catch_up, first.overlap, first.jitter) == (
        "skip",
        10,
        "allow",
        0,
    )


def test_a_second_schedule_without_a_name_is_refused_and_the_first_stays() -> None:
    made = schedule(every=60)(job())
    with pytest.raises(DeclarationError, match=r'name="tests\.nightly-2"'):
        schedule(every=3600)(made)
    assert str(timetables()["tests.nightly"].cadence) == "every 60 s"


def test_a_job_that_is_loaded_again_brings_its_schedules_anew() -> None:
    made = job()
    schedule(every=60)(made)
    schedule(every=3600, name="tests.hourly")(made)
    again = job(made.fn)
    schedule(every=120)(again)
    assert [str(one.cadence) for one in timetables().values()] == ["every 120 s"]


@pytest.mark.parametrize(
    ("args", "options", "text"),
    [
        ((), {}, "when?"),
        (("0 3 * * *",), {**ROME, "every": 60}, "when?"),
        ((7,), ROME, "is no text"),
        (("0 3 * * *",), {}, "in which time zone"),
        *[
            (("0 3 * * *",), {"tz": zone}, "Europe/Rome")
            for zone in ("", "Rome", "EST", "Etc/GMT+5", "+02:00", "Mars/Olympus", "GMT", 2, "../x")
        ],
        ((), {"every": 60, "tz": "UTC"}, "Drop tz="),
        *[
            ((), {"every": value}, "whole seconds from 1")
            for value in (0, -1, 0.5, float("nan"), float("inf"), True, "60", 10**9)
        ],
        *[
            ((), {"every": 60, "missed": "all", "max_catch_up": value}, "from 1 to 1,000")
            for value in (0, -1, 0.5, float("nan"), float("inf"), 1001, True)
        ],
        ((), {"every": 60, "max_catch_up": 5}, 'Write missed="all"'),
        ((), {"every": 60, "missed": "latest"}, '"skip", "once", "all"'),
        ((), {"every": 60, "overlap": "wait"}, '"allow", "skip", "queue_one", "supersede"'),
        ((), {"every": 60, "jitter": -1}, "jitter=-1; write whole seconds from 0"),
        ((), {"every": 60, "per_tenant": ["a"]}, "a function that returns the tenants"),
        ((), {"every": 60, "arguments": ["a"]}, "write a dict by argument name"),
        ((), {"every": 60, "arguments": {"nope": 1}}, "no argument 'nope'.*Correct arguments="),
        ((), {"every": 60, "name": ""}, "name is empty"),
        ((), {"every": 60, "name": "x" * 201}, "at most 200"),
        (("0 0 30 2 *",), ROME, "bad day-of-month"),
        ((",".join(map(str, range(60))) + " " * 60 + "* * * *",), ROME, "more than 200"),
    ],
)
def test_a_wrong_declaration_is_refused_with_the_edit_that_mends_it(
    args: tuple[Any, ...], options: dict[str, Any], text: str
) -> None:
    message = refused(text, *args, **options)
    assert message.startswith("tests.nightly: @schedule")


def test_it_stands_above_a_job_with_parentheses() -> None:
    def plain() -> None:
        """No job."""

    refused("stands above @job", made=plain, every=60)
    refused("needs parentheses", job())


def test_arguments_are_checked_against_the_job() -> None:
    def report(day: int, note: str) -> None:
        """Takes two."""

    made = job(report)
    refused("'note' is missing", every=60, arguments={"day": 1}, made=made)
    refused("day", every=60, arguments={"day": "x", "note": ""}, made=made)
    refused("arguments", every=60, arguments={"day": "{occurrence}", "note": ""}, made=made)
    refused("whose {tenant}", every=60, arguments={"day": 1, "note": "{tenant}"}, made=made)


def test_a_tenant_must_reach_a_job_that_derives_it() -> None:
    def report(company: str) -> None:
        """Of a company."""

    made = job(report, tenant="{company}")
    refused(
        "no argument says which", every=60, per_tenant=list, arguments={"company": "x"}, made=made
    )


def test_supersede_is_the_lanes_of_a_job_that_has_one() -> None:
    def index(document: int) -> None:
        """In a lane."""

    made = definitions.job(lane="{document}", name="tests.index")(index)
    refused("Drop overlap=", every=60, overlap="supersede", arguments={"document": 1}, made=made)


def test_the_occurrence_comes_as_the_job_takes_it_in_the_schedules_zone() -> None:
    def moment(at: datetime) -> None: ...
    def day(at: date) -> None: ...
    def text(at: str) -> None: ...

    local = "2026-03-29T03:00:00+02:00"
    for fn, expected in (
        (moment, datetime.fromisoformat(local)),
        (day, date(2026, 3, 29)),
        (text, local),
    ):
        schedule("0 3 * * *", arguments={"at": "{occurrence}"}, **ROME)(job(fn))
        made = timetables()[f"tests.{fn.__name__}"]
        assert made.call(AT, None) == {"at": expected}
        made.request(AT, None)
    schedule(every=60, arguments={"at": "of {occurrence}"}, name="within")(job(text))
    assert timetables()["within"].call(AT, None) == {"at": "of 2026-03-29T01:00:00+00:00"}


def test_a_tenant_is_handed_over_as_it_is_or_within_a_text() -> None:
    def mixed(company: int, at: date, label: str) -> None: ...

    schedule(
        "0 3 * * *",
        per_tenant=lambda: [7, 7, 8],
        arguments={"company": "{tenant}", "at": "{occurrence}", "label": "for {tenant}"},
        **ROME,
    )(job(mixed, tenant="{company}"))
    made = timetables()["tests.mixed"]
    assert made.tenants() == [7, 8]
    assert made.call(AT, 7) == {"company": 7, "at": date(2026, 3, 29), "label": "for 7"}
    assert made.request(AT, 7).tenant == "7"


def test_each_occurrence_has_a_key_of_its_own_that_is_the_same_everywhere() -> None:
    made = schedule("0 3 * * *", **ROME)(job(idempotency_key="nightly"))
    request = timetables()[made.name].request(AT, None)
    assert request.idempotency_key == "tests.nightly@2026-03-29T01:00:00Z"
    assert stamp(AT.astimezone(timezone_of(5))) == "2026-03-29T01:00:00Z"
    assert (request.run_at, request.bypass, request.enqueued_by) == (
        AT,
        True,
        "schedule:tests.nightly",
    )


def timezone_of(hours: int) -> Any:
    from datetime import timezone

    return timezone(timedelta(hours=hours))


def test_jitter_is_spread_over_tenants_and_stays_within_its_limit() -> None:
    schedule(every=60, jitter=timedelta(minutes=10))(job())
    made = timetables()["tests.nightly"]
    delays = {made.delay(str(tenant)) for tenant in range(200)}
    assert max(delays) <= timedelta(minutes=10) and len(delays) > 100
    assert made.delay("a") == made.delay("a")
