"""Each system check speaks when it should, and only then."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connections

from django_jobs import checks


def found(databases: list[str] | None = None) -> dict[str, Any]:
    """What Django's own runner reports of ours, by the end of the id."""
    messages = run_checks(databases=databases)
    return {m.id.split(".")[1]: m for m in messages if str(m.id).startswith("django_jobs.")}


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Changes the settings of an alias for this test."""

    def change(alias: str, **values: Any) -> None:
        changed = {**copy.deepcopy(connections.settings[alias]), **values}
        monkeypatch.setitem(connections.settings, alias, changed)

    return change


@pytest.mark.django_db(databases="__all__")
def test_a_project_that_is_set_up_well_hears_nothing() -> None:
    assert found(databases=["default", "other", "sqlite"]) == {}


def test_naive_times_are_refused(settings: Any) -> None:
    settings.USE_TZ = False
    assert "USE_TZ = True" in found()["E001"].hint


@pytest.mark.parametrize("value", [{"LAESE": 3}, {"LEASE": -1}, "lease"])
def test_settings_that_cannot_work_are_refused(settings: Any, value: Any) -> None:
    settings.DJANGO_JOBS = value
    assert set(found()) == {"E002"}


@pytest.mark.parametrize("setting", ["DATABASE", "OUTBOX_DATABASES", "LISTEN_DATABASE"])
def test_a_database_that_does_not_exist_is_refused(settings: Any, setting: str) -> None:
    settings.DJANGO_JOBS = {setting: ["nowhere"] if setting.endswith("S") else "nowhere"}
    message = found()["E003"].msg
    known = ", ".join(sorted(connections.settings))  # Other tests may have added an alias.
    assert setting in message
    assert f"'nowhere', which DATABASES does not have. It has: {known}." in message


def test_an_engine_that_is_not_supported_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "mysql")
    assert set(found()) == {"E004"}


@pytest.mark.django_db(databases="__all__")
def test_a_server_that_is_too_old_is_refused(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_JOBS = {"OUTBOX_DATABASES": ["default", "sqlite"]}
    assert not found(["default", "sqlite"])
    monkeypatch.setattr(checks, "MINIMUM_POSTGRES", 99)
    assert not found()
    assert "PostgreSQL 99 or newer" in found(["default"])["E005"].msg
    monkeypatch.setattr(checks, "MINIMUM_SQLITE", (9, 1))
    assert "SQLite 9.1 or newer" in found(["sqlite"])["E005"].msg


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transaction_mode": "DEFERRED", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL"},
        {"transaction_mode": "IMMEDIATE", "timeout": 1, "init_command": "PRAGMA journal_mode=WAL"},
        {"transaction_mode": "IMMEDIATE", "timeout": 20},
        {"timeout": 60, "init_command": "PRAGMA cache_size=99"},
    ],
)
def test_sqlite_without_our_options_is_told_the_exact_ones(
    settings: Any, database: Any, options: dict[str, Any]
) -> None:
    settings.DJANGO_JOBS = {"DATABASE": "sqlite"}
    database("sqlite", OPTIONS=options)
    told = found()["W001"].hint
    corrected = eval(told.partition(" = ")[2])
    assert corrected["timeout"] == max(20, options.get("timeout", 0))
    assert options.get("init_command", "") in corrected["init_command"]
    database("sqlite", OPTIONS=corrected)
    assert found() == {}


def test_sqlite_that_holds_no_jobs_is_left_alone(database: Any) -> None:
    database("sqlite", OPTIONS={})
    assert found() == {}


@pytest.mark.parametrize(
    ("provider", "warned"), [("channels", True), ("django_jobs", False), (None, False)]
)
def test_another_runworker_is_named(
    monkeypatch: pytest.MonkeyPatch, provider: str | None, warned: bool
) -> None:
    commands = {} if provider is None else {"runworker": provider}
    monkeypatch.setattr(checks, "get_commands", lambda: commands)
    message = found().get("W002")
    assert (message is not None) is warned
    assert message is None or ("'channels'" in message.msg and "jobs_worker" in message.hint)


def test_atomic_requests_on_several_databases_are_pointed_out(database: Any) -> None:
    database("default", ATOMIC_REQUESTS=True)
    assert found() == {}
    database("other", ATOMIC_REQUESTS=True)
    assert "'default', 'other'" in found()["W003"].msg


@pytest.mark.parametrize(
    ("pool", "warned"),
    [
        ({"max_size": 3}, True),
        ({"min_size": 1, "max_size": None}, True),
        ({"min_size": 1}, True),
        ({"max_size": 4}, False),
        (True, False),
    ],
)
def test_a_pool_smaller_than_the_threads_is_pointed_out(
    database: Any, pool: Any, warned: bool
) -> None:
    database("default", OPTIONS={"pool": pool})
    assert ("W004" in found()) is warned


def test_the_default_number_of_threads_is_the_workers_own() -> None:
    from django_jobs.management.commands import jobs_worker

    parser = jobs_worker.Command().create_parser("manage.py", "runworker")
    assert jobs_worker.THREADS is checks.THREADS
    assert f"default {checks.THREADS};" in parser.format_help()
