"""System checks: what would make jobs fail later is said when the project starts.

=====  ==========================================================================
E001   ``USE_TZ`` is off
E002   ``DJANGO_JOBS`` holds an unknown or impossible value
E003   ``DJANGO_JOBS`` names a database that ``DATABASES`` does not have
E004   the engine of such a database is neither PostgreSQL nor SQLite
E005   its server is too old (``check --database``, ``migrate``)
W001   SQLite lacks the options that let web processes and a worker share it
W002   another app's ``runworker`` hides ours
W003   ``ATOMIC_REQUESTS`` on several databases, so that it is unclear which one stages
W004   the connection pool is smaller than a worker process's default threads
=====  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from django.conf import settings as project
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.management import get_commands
from django.core.management.base import BaseCommand
from django.db import connections

from django_jobs import conf
from django_jobs.connections import SQLITE_OPTIONS, pool_size

MINIMUM_POSTGRES = 15
MINIMUM_SQLITE = (3, 37)
THREADS = 4
"""Threads of a worker process that is not told otherwise."""


@register
def check_time_zones(**_: Any) -> list[CheckMessage]:
    """E001: without ``USE_TZ`` times carry no zone, and due times move when clocks change."""
    if project.USE_TZ:
        return []
    return [
        Error(
            "django_jobs needs USE_TZ = True: with naive times a due time would depend on the "
            "time zone of whoever reads it.",
            hint="Set USE_TZ = True.",
            id="django_jobs.E001",
        )
    ]


@register
def check_settings(**_: Any) -> list[CheckMessage]:
    """E002: ``DJANGO_JOBS`` cannot be read."""
    error = conf.fault()
    if error is None:
        return []
    hint = "docs/reference/settings.md lists every setting with its default and meaning."
    return [Error(str(error), hint=hint, id="django_jobs.E002")]


@register
def check_aliases(**_: Any) -> list[CheckMessage]:
    """E003 for each setting that names no database, E004 for each engine we cannot use."""
    settings = _settings()
    if settings is None:
        return []
    named = [("DATABASE", settings.database)]
    named += [("OUTBOX_DATABASES", alias) for alias in settings.outbox_databases]
    if settings.listen_database is not None:
        named.append(("LISTEN_DATABASE", settings.listen_database))
    return [
        Error(
            f"DJANGO_JOBS[{setting!r}] names the database {alias!r}, which DATABASES does not "
            f"have. It has: {', '.join(sorted(connections))}.",
            hint="Correct the name, or add the database.",
            id="django_jobs.E003",
        )
        for setting, alias in dict.fromkeys(named)
        if alias not in connections.settings
    ] + _engines()


def _engines() -> list[CheckMessage]:
    return [
        Error(
            f"Database {alias!r} is {connections[alias].display_name}; django_jobs works on "
            "PostgreSQL and on SQLite.",
            hint="Name a PostgreSQL database in DJANGO_JOBS['DATABASE'].",
            id="django_jobs.E004",
        )
        for alias in _used()
        if connections[alias].vendor not in ("postgresql", "sqlite")
    ]


@register
def check_sqlite_options(**_: Any) -> list[CheckMessage]:
    """W001 for each SQLite database of ours whose web processes would meet "database is locked"."""
    return [
        Warning(
            f"Database {alias!r} is SQLite without the options that let web processes and a "
            "worker write to it side by side; requests will fail with 'database is locked'.",
            hint=f'Set DATABASES[{alias!r}]["OPTIONS"] = {_merged_options(alias)!r}',
            id="django_jobs.W001",
        )
        for alias in _used()
        if connections[alias].vendor == "sqlite" and _lacks_options(alias)
    ]


def _lacks_options(alias: str) -> bool:
    options = connections.settings[alias].get("OPTIONS", {})
    journal = _squeezed(SQLITE_OPTIONS["init_command"])
    return (
        str(options.get("transaction_mode", "")).upper() != SQLITE_OPTIONS["transaction_mode"]
        or float(options.get("timeout", 5)) < SQLITE_OPTIONS["timeout"]
        or journal not in _squeezed(str(options.get("init_command", "")))
    )


def _squeezed(statement: str) -> str:
    return "".join(statement.lower().split())


def _merged_options(alias: str) -> dict[str, Any]:
    """The options that the project should set: its own, with ours where they are missing."""
    options = dict(connections.settings[alias].get("OPTIONS", {}))
    own = str(options.get("init_command", "")).strip().rstrip(";")
    merged = {**options, **SQLITE_OPTIONS}
    if own and "journal_mode" not in own.lower():
        merged["init_command"] = f"{own}; {SQLITE_OPTIONS['init_command']}"
    merged["timeout"] = max(float(options.get("timeout", 0)), SQLITE_OPTIONS["timeout"])
    return merged


@register
def check_runworker(**_: Any) -> list[CheckMessage]:
    """W002: ``manage.py runworker`` would start something else."""
    provider = get_commands().get("runworker", "django_jobs")
    name = provider.__module__ if isinstance(provider, BaseCommand) else provider
    if name.split(".")[0] == "django_jobs":
        return []
    return [
        Warning(
            f"'manage.py runworker' is the command of {name!r}, not of django_jobs.",
            hint=f"Put 'django_jobs' before {name!r} in INSTALLED_APPS, or start the worker "
            "with 'manage.py jobs_worker'.",
            id="django_jobs.W002",
        )
    ]


@register
def check_atomic_requests(**_: Any) -> list[CheckMessage]:
    """W003: each request opens several transactions, and a job is staged in one of them."""
    atomic = [alias for alias in connections if connections.settings[alias]["ATOMIC_REQUESTS"]]
    if len(atomic) < 2:
        return []
    return [
        Warning(
            f"ATOMIC_REQUESTS is set on {', '.join(map(repr, atomic))}: in a request, enqueue() "
            "finds a transaction open on each of them and stages in the first that has an outbox.",
            hint="Say which with job.using(database=...), or set ATOMIC_REQUESTS on one only.",
            id="django_jobs.W003",
        )
    ]


@register
def check_pools(**_: Any) -> list[CheckMessage]:
    """W004: bodies would wait for one another's connections."""
    return [
        Warning(
            f"The connection pool of database {alias!r} has max_size {size}, but a worker process "
            f"runs {THREADS} bodies at a time unless it is told otherwise.",
            hint=f'Set DATABASES[{alias!r}]["OPTIONS"]["pool"]["max_size"] to the worker\'s '
            "--threads or more, or start it with fewer threads.",
            id="django_jobs.W004",
        )
        for alias in connections
        if (size := pool_size(alias)) is not None and size < THREADS
    ]


@register(Tags.database)
def check_versions(databases: Collection[str] | None = None, **_: Any) -> list[CheckMessage]:
    """E005 for each of our databases among ``databases`` whose server is too old."""
    return [
        Error(
            f"Database {alias!r} is {found}; django_jobs needs {needed}.",
            hint="Upgrade the server.",
            id="django_jobs.E005",
        )
        for alias in _used()
        if alias in (databases or ())
        for found, needed in _too_old(alias)
    ]


def _too_old(alias: str) -> list[tuple[str, str]]:
    connection: Any = connections[alias]
    if connection.vendor == "postgresql":
        version = connection.pg_version // 10_000
        if version < MINIMUM_POSTGRES:
            return [(f"PostgreSQL {version}", f"PostgreSQL {MINIMUM_POSTGRES} or newer")]
    if connection.vendor == "sqlite":
        found = connection.Database.sqlite_version_info
        if found < MINIMUM_SQLITE:
            return [
                (
                    f"SQLite {'.'.join(map(str, found))}",
                    f"SQLite {'.'.join(map(str, MINIMUM_SQLITE))} or newer",
                )
            ]
    return []


def _settings() -> conf.Settings | None:
    """The settings, or nothing when E002 has the word."""
    return conf.current() if conf.fault() is None else None


def _used() -> Sequence[str]:
    """The aliases that hold jobs or an outbox, as far as they exist."""
    settings = _settings()
    if settings is None:
        return ()
    named = dict.fromkeys((settings.database, *settings.outbox_databases))
    return [alias for alias in named if alias in connections.settings]
