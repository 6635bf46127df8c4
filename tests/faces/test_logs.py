"""Log lines of ended runs: failures each, successes within a ration."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs import logs
from django_jobs.ids import new_id
from django_jobs.outcomes import Buried, Failure, Outcome, Retried, Succeeded
from django_jobs.signals import job_ended

SUCCESS, FAILURE = Succeeded(), Failure("ValueError", "why", "")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The seconds that logs sees, and a ration nobody has taken from."""
    seen = SimpleNamespace(seconds=50.0)
    seen.monotonic = lambda: seen.seconds
    monkeypatch.setattr(logs, "time", seen)
    monkeypatch.setattr(logs, "_successes", logs.Ration(logs.SUCCESSES_A_SECOND))
    return seen


def end(outcome: Outcome, times: int = 1) -> None:
    for _ in range(times):
        run: Any = SimpleNamespace(id=new_id(), attempt=1, max_attempts=3, claimed_at=0.0)
        job_ended.send_robust(sender="app.job", run=run, outcome=outcome, seconds=0.5)


def test_a_hundred_successes_a_second_have_a_line_each_and_one_says_that_there_are_more(
    clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_jobs.jobs")
    end(SUCCESS, 300)
    lines = caplog.messages
    assert len(lines) == 101
    assert lines[0].startswith("succeeded app.job ") and lines[0].endswith("attempt=1/3 ms=500")
    assert lines[100] == "more than 100 successes within a second: the rest at DEBUG"
    clock.seconds += 1.0
    end(SUCCESS, 2)
    assert len(caplog.messages) == 103


def test_at_debug_every_success_has_its_line(clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "django_jobs.jobs")
    end(SUCCESS, 300)
    assert sum(line.startswith("succeeded") for line in caplog.messages) == 300


def test_what_failed_has_a_line_however_many_there_are(
    clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_jobs.jobs")
    end(SUCCESS, 300)
    caplog.clear()
    end(Retried(FAILURE, 2.0), 200)
    end(Buried(FAILURE, "given up"), 200)
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING] * 200 + [logging.ERROR] * 200
