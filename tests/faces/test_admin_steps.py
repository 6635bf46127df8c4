"""A job's page shows its steps, its children and who waits for it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_jobs import enqueue, step
from django_jobs.admin import steps
from tests.app.jobs import noop
from tests.app.tasks import done
from tests.steps.stepping import run

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def boss(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ada"))
    return client


def page(boss: Client, job: object) -> str:
    response = boss.get(f"/admin/django_jobs/job/{job.id}/change/")  # type: ignore[attr-defined]
    assert response.status_code == 200
    return response.content.decode()


def test_a_parent_and_its_child_show_each_other_and_stored_text_is_only_text(boss: Client) -> None:
    child = enqueue(noop.using(delay=3600))

    def fails() -> None:
        raise ValueError(f"{EVIL} password=hunter2")

    def body() -> None:
        step.run("collect", done, "a")
        try:
            step.run(EVIL, fails)
        except ValueError:
            step.run("after", done, "b")
        step.wait_for_jobs("children", [child])

    parent, _ = run(body)
    text = page(boss, parent)
    for expected in ("collect", "done", "failed", "waiting", "ValueError"):
        assert expected in text
    assert f"/admin/django_jobs/job/{child.id}/change/" in text
    assert EVIL not in text
    assert "hunter2" not in text
    assert f'Waited for by <a href="/admin/django_jobs/job/{parent.id}/change/' in page(boss, child)


def test_a_job_of_many_steps_shows_the_latest(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "STEPS", 3)
    monkeypatch.setattr("django_jobs.admin.jobs.STEPS", 3)
    job, _ = run(lambda: [step.run(f"number{n}", int) for n in range(5)])
    text = page(boss, job)
    assert "number4" in text
    assert "number1" not in text
    assert "There are earlier steps" in text


def test_a_job_without_steps_shows_none(boss: Client) -> None:
    job, _ = run(lambda: None)
    assert "dj-steps" not in page(boss, job)
