"""The admin's page of passes: what it shows, and whom it lets steer them."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_jobs.models import Backfill, SkippedRow
from django_jobs.operations.backfilling import found_pass
from tests.app.backfills import count_changes
from tests.backfills.parties import make_items, start

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

LIST = "/admin/django_jobs/backfill/"
EVIL = "<script>alert(1)</script>"


def client_with(*permissions: str) -> Client:
    user = User.objects.create_user(f"staff{User.objects.count()}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def page(row: Backfill) -> str:
    return f"{LIST}{row.pk}/change/"


def order(client: Client, row: Backfill, name: str, **more: str) -> int:
    return client.post(f"{LIST}{row.pk}/order/", {"order": name, **more}).status_code


def test_a_running_pass_shows_its_progress_and_is_loaded_again(admin_client: Client) -> None:
    make_items(10)
    started = start(count_changes)
    Backfill.objects.update(expected=40, started_at=started.created_at)
    started.ranges.update(rows=10)
    for url in (LIST, page(started)):
        shown = admin_client.get(url).content.decode()
        assert '<progress max="100" value="25">' in shown
        assert "dj-running" in shown
    assert 'http-equiv="refresh"' in shown
    Backfill.objects.filter(pk=started.pk).update(state="completed")
    shown = admin_client.get(page(started)).content.decode()
    assert 'value="100"' in shown
    assert 'http-equiv="refresh"' not in shown
    assert 'name="order"' not in shown


def test_an_operator_pauses_resumes_changes_the_rate_and_cancels() -> None:
    client = client_with("view_backfill", "operate_backfill")
    started = start(count_changes)
    for name, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert f'value="{name}"' in client.get(page(started)).content.decode()
        assert order(client, started, name) == 302
        assert found_pass(started.pk).state == state
    assert found_pass(started.pk).ordered_by == "staff0"
    again = start(count_changes)
    order(client, again, "rate", rate="250", rate_per="rows")
    assert (found_pass(again.pk).rate, found_pass(again.pk).rate_per) == (250.0, "rows")
    for bad in ("-1", "nan", "fast"):
        order(client, again, "rate", rate=bad, rate_per="rows")
        assert found_pass(again.pk).rate == 250.0
    order(client, again, "rate", rate="", rate_per="pages")
    assert found_pass(again.pk).rate is None


def test_who_may_only_look_steers_nothing() -> None:
    client = client_with("view_backfill")
    started = start(count_changes)
    assert 'name="order"' not in client.get(page(started)).content.decode()
    assert order(client, started, "cancel") == 403
    assert client_with().get(page(started)).status_code == 403
    assert order(client_with("operate_backfill"), started, "cancel") == 403
    assert client.get(f"{LIST}{started.pk}/order/").status_code == 403
    assert found_pass(started.pk).state == "running"


def test_a_pass_takes_no_orders_of_jobs(admin_client: Client) -> None:
    started = start(count_changes)
    for name in ("cancel", "retry"):
        answer = admin_client.get(f"{LIST}{started.pk}/{name}/", follow=True)
        assert b"dj-order" not in answer.content
        assert answer.redirect_chain[-1][0] == "/admin/"


def test_stored_text_is_only_text_and_an_unknown_state_breaks_nothing(
    admin_client: Client,
) -> None:
    started = start(count_changes)
    SkippedRow.objects.create(backfill=started, key=EVIL, error=EVIL)
    Backfill.objects.update(name=EVIL, note=EVIL, error=EVIL, reason=EVIL, state="resting")
    for url in (LIST, page(started)):
        shown = admin_client.get(url).content.decode()
        assert EVIL not in shown
        assert "&lt;script&gt;" in shown
        assert "unknown to this release" in shown
