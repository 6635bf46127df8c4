"""The migrations, on both engines."""

from __future__ import annotations

from io import StringIO

from django.core.management import call_command
from django.db import connections

from django_jobs import enqueue
from django_jobs.models import Job
from django_jobs.models.picking import is_postgres
from tests.app.jobs import noop


def test_the_models_have_no_change_that_a_migration_misses(jobs_alias: str) -> None:
    call_command("makemigrations", "--check", "--dry-run", stdout=StringIO())


def test_migrations_go_down_to_zero_and_up_again(jobs_alias: str) -> None:
    enqueue(noop)
    call_command("migrate", "django_jobs", "zero", database=jobs_alias, verbosity=0)
    assert not [
        t for t in connections[jobs_alias].introspection.table_names() if "django_jobs" in t
    ]
    call_command("migrate", "django_jobs", database=jobs_alias, verbosity=0)
    enqueue(noop)
    assert Job.objects.count() == 1


def test_queue_tables_are_vacuumed_sooner_than_the_default(jobs_alias: str) -> None:
    if not is_postgres(jobs_alias):
        return  # SQLite has no such setting; that the migration ran there is the point.
    with connections[jobs_alias].cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = 'django_jobs_job'")
        assert "autovacuum_vacuum_scale_factor=0.01" in cursor.fetchone()[0]
