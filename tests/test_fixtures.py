"""The fixtures that all tests stand on: both engines, empty tables, real processes."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connections

from tests import flush
from tests.app.models import Account
from tests.workers import WorkerFactory

ALIASES = ("default", "other", "sqlite")

# A process that a test may signal, whatever the worker can do by now.
LONG = "import os, time; print('up', os.getpid(), flush=True); time.sleep(600)"


def test_both_engines_hold_the_jobs_in_turn(jobs_alias: str, settings: Any) -> None:
    assert settings.DJANGO_JOBS["DATABASE"] == jobs_alias
    assert (
        connections[jobs_alias].vendor == {"default": "postgresql", "sqlite": "sqlite"}[jobs_alias]
    )


@pytest.mark.parametrize("_turn", range(2))
def test_rows_that_a_test_committed_are_gone_in_the_next(jobs_alias: str, _turn: int) -> None:
    for alias in ALIASES:
        assert not Account.objects.using(alias).exists()
        Account.objects.using(alias).create(name="a")


def test_what_migrate_wrote_stays(jobs_alias: str) -> None:
    flush.empty(jobs_alias)
    assert ContentType.objects.using(jobs_alias).filter(app_label="testapp").exists()


def test_a_large_table_is_emptied_too(jobs_alias: str) -> None:
    accounts = [Account(name=f"{n}{'x' * 1000}") for n in range(5000)]
    Account.objects.using(jobs_alias).bulk_create(accounts)
    flush.empty(jobs_alias)
    assert not Account.objects.using(jobs_alias).exists()


def test_a_started_process_sees_the_test_database_and_its_settings(
    jobs_alias: str, worker: WorkerFactory
) -> None:
    Account.objects.using(jobs_alias).create(name="seen")
    code = (
        "from django.conf import settings as s; from tests.app.models import Account; "
        "alias = s.DJANGO_JOBS['DATABASE']; "
        "print(s.DJANGO_JOBS['LEASE'], Account.objects.using(alias).get().name)"
    )
    asked = worker("--command", code, command="shell", LEASE=7)
    assert asked.wait() == 0
    assert "7 seen" in asked.output


def test_a_started_process_can_be_stopped_frozen_and_killed(worker: WorkerFactory) -> None:
    first, second = (worker("--command", LONG, command="shell") for _ in range(2))
    first.wait_for("up")
    second.wait_for("up")
    first.freeze()
    first.thaw()
    assert first.running
    assert first.stop() == -signal.SIGTERM
    second.kill()
    assert not second.running
