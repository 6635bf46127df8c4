"""Empty tables between tests that commit.

Django's ``flush`` truncates every table of every alias and creates permissions and content types
again, half a second per test here. This asks each database once which tables hold rows and deletes
these rows.
"""

from __future__ import annotations

from functools import cache

from django.apps import apps
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TransactionTestCase

# What `migrate` itself wrote.
KEPT = {"django_migrations", "django_content_type", "auth_permission", "django_jobs_deployment"}

LARGE = 4 * 1024 * 1024  # bytes; from here TRUNCATE is cheaper than DELETE and its dead rows
LOCK_TIMEOUT = "10s"


@cache
def tables(alias: str) -> list[str]:
    """Every table of the installed apps in ``alias``, many-to-many tables too."""
    models = apps.get_models(include_auto_created=True)
    names = {m._meta.db_table for m in models if m._meta.managed and not m._meta.proxy}
    return sorted((names - KEPT) & set(connections[alias].introspection.table_names()))


def empty(alias: str) -> None:
    """Delete all rows of ``alias`` but those that ``migrate`` wrote.

    A session that still holds a lock makes this fail after ``LOCK_TIMEOUT`` and not hang.
    """
    connection = connections[alias]
    postgresql = connection.vendor == "postgresql"
    with transaction.atomic(using=alias), connection.cursor() as cursor:
        if postgresql:
            # Foreign keys are deferred: any order will do.
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        else:
            cursor.execute("PRAGMA defer_foreign_keys = ON")
        for name in _filled(connection, tables(alias)):
            quoted = connection.ops.quote_name(name)
            if postgresql and _size(connection, name) > LARGE:
                cursor.execute(f"TRUNCATE {quoted} CASCADE")
            else:
                cursor.execute(f"DELETE FROM {quoted}")


def _filled(connection: BaseDatabaseWrapper, names: list[str]) -> list[str]:
    if not names:
        return []
    asks = [
        f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {connection.ops.quote_name(name)})"
        for name in names
    ]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(asks))
        return [row[0] for row in cursor.fetchall()]


def _size(connection: BaseDatabaseWrapper, name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size(%s::regclass)", [name])
        return int(cursor.fetchone()[0])


def _fixture_teardown(self: TransactionTestCase) -> None:
    for alias in self._databases_names(include_mirrors=False):
        empty(alias)


def install() -> None:
    """Use this after every test of this run that commits."""
    TransactionTestCase._fixture_teardown = _fixture_teardown  # type: ignore[method-assign]
