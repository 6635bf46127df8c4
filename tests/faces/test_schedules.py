"""Schedules in the admin and on the command line."""

from __future__ import annotations

import json
import re
from datetime import date, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse
from django.utils.html import strip_tags

from django_jobs import definitions, pause_schedule, schedule
from django_jobs.admin import ScheduleAdmin
from django_jobs.definitions import registered as jobs_registered
from django_jobs.loops.scheduler import Scheduler
from django_jobs.models import Outbox, Schedule, ScheduleDecision
from django_jobs.schedules import registered
from django_jobs.testing import drain
from tests.app.jobs import noop

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

NAME = "tests.app.jobs.noop"
HOW_TO = Path(__file__).resolve().parent.parent.parent / "docs/how-to/schedules.md"
LIST = "/admin/django_jobs/schedule/"
EVIL = "<script>alert(1)</script>\"onmouseover='x'</textarea>\u202e\u200b"


@pytest.fixture(autouse=True)
def one_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """One schedule that no worker has seen, and none besides."""
    monkeypatch.setattr(registered, "_timetables", {})
    schedule("30 2 * * *", tz="Asia/Kolkata")(noop)


@pytest.fixture
def boss(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ada"))
    return client


def operator(*permissions: str) -> Client:
    user = User.objects.create_user(f"staff{User.objects.count()}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def page(what: str = "change", name: str = NAME) -> str:
    return reverse(f"admin:django_jobs_schedule_{what}", args=[quote(name)])


def jobs(*arguments: str) -> str:
    out = StringIO()
    call_command("jobs", *arguments, stdout=out)
    return out.getvalue()


# --- the admin -----------------------------------------------------------------------------------


def test_the_list_and_the_page_show_a_schedule_on_both_engines(
    boss: Client, jobs_alias: str
) -> None:
    Scheduler().tick()
    html = strip_tags(boss.get(LIST).content.decode())
    assert "Times are in the time zone UTC." in html
    assert NAME in html and "30 2 * * * Asia/Kolkata" in html and "active" in html
    html = boss.get(page()).content.decode()
    assert len(re.findall(r"\d{4}-\d\d-\d\d 02:30:00 \+0530", html)) == 5
    assert "Nothing has been decided yet" in html


def test_the_page_shows_every_column() -> None:
    columns = {"badge": "name", "ahead": "name", "d_paused": "paused_at", "d_failed": "failed_at"}
    columns |= {"d_wake": "wake_at", "d_seen": "seen_at", "d_created": "created_at"}
    shown = {columns.get(f, f.removeprefix("d_")) for f in ScheduleAdmin.readonly_fields}
    assert shown == {field.name for field in Schedule._meta.fields}


def test_nothing_can_be_added_changed_or_deleted(boss: Client) -> None:
    Scheduler().tick()
    assert boss.get(f"{LIST}add/").status_code == 403
    assert boss.post(page(), {"name": "x"}).status_code == 403
    assert boss.get(page("delete")).status_code == 403


def test_an_operator_pauses_resumes_and_triggers_with_a_reason(
    boss: Client, jobs_alias: str
) -> None:
    Scheduler().tick()
    rows = Schedule.objects.using(jobs_alias)
    for what in ("pause", "resume", "trigger"):
        assert boss.get(page(what)).status_code == 200
        assert b"errornote" in boss.post(page(what), {"reason": ""}).content
    assert rows.get().paused_at is None and not Outbox.objects.using(jobs_alias).exists()
    answer = boss.post(page("pause"), {"reason": "migration"}, follow=True)
    assert "is paused" in answer.content.decode()
    assert (rows.get().paused_by, rows.get().pause_reason) == ("ada", "migration")
    assert page("resume") in answer.content.decode()
    assert page("pause") not in answer.content.decode()
    assert "so already" in boss.post(page("pause"), {"reason": "x"}, follow=True).content.decode()
    assert "runs again" in boss.post(page("resume"), {"reason": "x"}, follow=True).content.decode()
    assert rows.get().paused_at is None
    html = boss.post(page("trigger"), {"reason": "asked for"}, follow=True).content.decode()
    entry = Outbox.objects.using(jobs_alias).get()
    assert "triggered" in html and "by ada: asked for" in html and str(entry.id) in html
    said = list(LogEntry.objects.order_by("id").values_list("change_message", flat=True))
    assert said == ["Pause. migration", "Resume. x", "Trigger now. asked for"]
    assert "asked for" in boss.get(page("history")).content.decode()


@pytest.mark.parametrize(
    ("may", "what", "status"),
    [
        (("view_schedule",), "pause", 403),
        (("view_schedule",), "trigger", 403),
        (("view_schedule", "pause_schedule"), "pause", 302),
        (("view_schedule", "pause_schedule"), "trigger", 403),
        (("view_schedule", "trigger_schedule"), "trigger", 302),
        (("pause_schedule",), "pause", 403),
        ((), "resume", 403),
    ],
)
def test_orders_need_their_permission(may: tuple[str, ...], what: str, status: int) -> None:
    Scheduler().tick()
    client = operator(*may)
    assert client.post(page(what), {"reason": "r"}).status_code == status
    if "view_schedule" in may:
        html = client.get(page()).content.decode()
        assert (page("trigger") in html) == ("trigger_schedule" in may)


def test_an_order_is_a_post_with_a_token() -> None:
    Scheduler().tick()
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("eve"))
    assert client.post(page("pause"), {"reason": "r"}).status_code == 403
    client.get(page("pause"))
    assert Schedule.objects.get().paused_at is None


def test_an_order_to_a_schedule_that_this_code_does_not_declare_says_so(boss: Client) -> None:
    Scheduler().tick()
    registered._timetables.clear()
    Schedule.objects.update(seen_at=Now() - timedelta(hours=1))
    assert "orphaned" in boss.get(LIST).content.decode()
    assert boss.get(page()).status_code == 200
    answer = boss.post(page("trigger"), {"reason": "r"}, follow=True)
    assert "declares no schedule" in answer.content.decode()
    assert boss.post(page("pause", "nonsense"), {"reason": "r"}).status_code == 302


def test_stored_text_is_only_text(boss: Client) -> None:
    Schedule.objects.create(
        name=EVIL, job=EVIL, cadence=EVIL, zone=EVIL, missed="skip", watermark=Now(), wake_at=Now(),
        error=EVIL, paused_by=EVIL, pause_reason=EVIL, paused_at=Now(), release=EVIL, previous=EVIL,
    )  # fmt: skip
    ScheduleDecision.objects.create(schedule=EVIL, outcome=EVIL[:20], reason=EVIL, tenant=EVIL)
    answers = [boss.get(url) for url in (LIST, page(name=EVIL), page("resume", EVIL))]
    answers.append(boss.post(page("resume", EVIL), {"reason": EVIL}, follow=True))
    for answer in answers:
        seen = answer.content.decode()
        assert answer.status_code == 200
        assert "<script>alert" not in seen and "onmouseover='x'" not in seen
        assert not re.search("[\u202e\u200b]", re.sub(r'(aria-label|href)="[^"]*"', "", seen))


# --- the how-to ----------------------------------------------------------------------------------


def test_the_page_on_schedules_does_what_it_says(
    jobs_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered._timetables.clear()
    monkeypatch.setattr(jobs_registered, "_definitions", dict(jobs_registered._definitions))
    definitions.allow("tests.page_on_schedules")
    page = HOW_TO.read_text()
    module: dict[str, Any] = {"__name__": "tests.page_on_schedules"}
    for text in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(text, str(HOW_TO), "exec"), module)
    assert [type(ran.outcome).__name__ for ran in drain()] == ["Succeeded"]
    (night,) = module["reports"]
    ahead = module["next_nights"]
    assert type(night) is date and night <= ahead[0].date()
    assert [(at.hour, at.minute, at.tzinfo.key) for at in ahead] == [(2, 30, "Europe/Rome")] * 3
    (console,) = re.findall(r"```console\n(.*?)```", page, re.S)
    for line in console.splitlines():
        assert "nightly_report" in jobs(*line.removeprefix("$ python manage.py jobs ").split())


# --- the command ---------------------------------------------------------------------------------


def test_the_command_lists_what_is_declared_and_how_it_stands(jobs_alias: str) -> None:
    assert jobs("schedules").splitlines()[0] == f"{NAME}  [unseen]  30 2 * * * Asia/Kolkata"
    Scheduler().tick()
    pause_schedule(NAME, by="ada", reason="migration")
    text = jobs("schedules", "--next", "3")
    assert text.splitlines()[0] == f"{NAME}  [paused]  30 2 * * * Asia/Kolkata"
    assert "paused by ada: migration" in text
    assert len(re.findall(r"next   \d{4}-\d\d-\d\d 02:30:00\+05:30", text)) == 3


def test_the_command_has_a_document_for_programs(jobs_alias: str) -> None:
    Scheduler().tick()
    (found,) = json.loads(jobs("schedules", "--json", "--next", "2"))
    assert (found["name"], found["condition"]) == (NAME, "active")
    ahead = [datetime.fromisoformat(at) for at in found["next"]]
    assert ahead[1] - ahead[0] == timedelta(days=1)
    assert found["last"] is None
    Schedule.objects.using(jobs_alias).update(watermark=Now() - timedelta(days=1.5), wake_at=Now())
    Scheduler().tick()
    (found,) = json.loads(jobs("schedules", "--json"))
    assert found["last"]["outcome"] == "fired"
    assert found["last"]["job_id"] == str(Outbox.objects.using(jobs_alias).get().id)


def test_the_command_shows_no_control_characters(jobs_alias: str) -> None:
    Scheduler().tick()
    Schedule.objects.using(jobs_alias).update(error="\x1b[31mred\u202e")
    assert "\\u001b[31mred\\u202e" in jobs("schedules")


def test_the_command_says_what_it_does_not_know(monkeypatch: Any) -> None:
    for wrong in (["schedules", "--next", "x"], ["schedules", "--next", "1001"], ["nonsense"], []):
        with pytest.raises(CommandError):
            jobs(*wrong)
    registered._timetables.clear()
    assert "There are no schedules" in jobs("schedules")
