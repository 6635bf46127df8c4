"""Jobs in a database of their own: which table is where, and where rows are read and written."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, router

from django_jobs.models import Attempt, Job, Lane, Outbox, Permit

JOBS = (Job, Attempt, Lane, Permit)


@pytest.fixture(autouse=True)
def two_databases(settings: Any) -> None:
    settings.DATABASE_ROUTERS = ["django_jobs.routers.JobsRouter"]
    settings.DJANGO_JOBS = {"DATABASE": "other", "OUTBOX_DATABASES": ["default"]}


def test_the_outbox_is_in_both_databases_and_all_else_in_one() -> None:
    for model in JOBS:
        assert router.allow_migrate_model("other", model)
        assert not router.allow_migrate_model("default", model)
    assert router.allow_migrate_model("other", Outbox)
    assert router.allow_migrate_model("default", Outbox)
    assert not router.allow_migrate_model("sqlite", Outbox)


def test_statements_of_migrations_run_where_the_jobs_are() -> None:
    assert router.allow_migrate("other", "django_jobs")
    # The function that stages is made wherever there is an outbox.
    stage = import_module("django_jobs.migrations.0007_stage_function").Migration.operations[0]
    assert router.allow_migrate("default", "django_jobs", **stage.hints)
    assert not router.allow_migrate("default", "django_jobs")


def test_reads_and_writes_go_to_the_jobs_database() -> None:
    for model in (*JOBS, Outbox):
        assert router.db_for_read(model) == router.db_for_write(model) == "other"


def test_an_entry_stays_in_its_own_outbox() -> None:
    entry = Outbox(name="a")
    entry._state.db = "default"
    assert router.db_for_write(Outbox, instance=entry) == "default"
    job = Job(name="a")
    job._state.db = "default"
    assert router.db_for_write(Job, instance=job) == "other"


def test_other_apps_are_none_of_its_business() -> None:
    assert router.db_for_read(User) == "default"
    assert router.allow_migrate_model("sqlite", User)


def test_migrate_makes_just_these_tables(
    tmp_path: Any, settings: Any, django_db_blocker: Any
) -> None:
    """On a fresh database that stages only, migrated from zero."""
    fresh = {**connections.settings["sqlite"], "NAME": str(tmp_path / "fresh.sqlite3")}
    connections.settings["fresh"] = fresh
    settings.DJANGO_JOBS = {"DATABASE": "other", "OUTBOX_DATABASES": ["fresh"]}
    try:
        with django_db_blocker.unblock():
            call_command("migrate", "django_jobs", database="fresh", verbosity=0)
            tables = connections["fresh"].introspection.table_names()
            connections["fresh"].close()
        assert [name for name in tables if name.startswith("django_jobs")] == ["django_jobs_outbox"]
    finally:
        del connections["fresh"]
        del connections.settings["fresh"]
