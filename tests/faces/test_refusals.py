"""A project whose settings cannot work hears so from every command, without a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import django_jobs
from django_jobs.errors import SettingsError
from tests.app.jobs import noop
from tests.workers import environment

ROOT = Path(__file__).resolve().parent.parent.parent

LEASE = ({"LEASE": -1}, "DJANGO_JOBS['LEASE'] is -1; expected a finite number above 0")
UNKNOWN = ({"LAESE": 3}, "DJANGO_JOBS has no setting 'LAESE'. Known: AUTODISCOVER")
NOWHERE = ({"DATABASE": "nowhere"}, "names the database 'nowhere', which DATABASES does not have")


def manage(jobs: dict[str, Any], *arguments: str) -> str:
    """What a refused command prints; it fails for it."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env=environment(jobs),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("command", ["check", "runworker"])
@pytest.mark.parametrize(("jobs", "said"), [LEASE, UNKNOWN, NOWHERE])
def test_a_command_names_the_setting_and_the_remedy(
    jobs: dict[str, Any], said: str, command: str
) -> None:
    printed = manage(jobs, command)
    assert said in printed
    assert "HINT:" in printed
    assert "Traceback" not in printed
    if command == "check" and "DATABASE" not in jobs:
        assert "django_jobs.E002" in printed


def test_the_first_use_of_a_job_names_the_setting(settings: Any) -> None:
    settings.DJANGO_JOBS = {"LEASE": -1}
    with pytest.raises(SettingsError, match="'LEASE'"):
        django_jobs.enqueue(noop)
    assert noop() is None  # Its body needs no settings.
