"""The admin finds jobs of the past by the beginning of their key; live ones have the unique index."""

from django.db import migrations

from django_jobs.migrations._postgres_only import PostgresOnly


class Migration(migrations.Migration):
    atomic = False  # A table of millions is written to while its index is made.

    dependencies = [("django_jobs", "0004_who_ordered_what")]

    operations = [
        PostgresOnly(
            sql=(
                "CREATE INDEX CONCURRENTLY IF NOT EXISTS django_jobs_job_past_key "
                "ON django_jobs_job (idempotency_key varchar_pattern_ops) "
                "WHERE state IN ('done', 'failed', 'dead', 'cancelled')"
            ),
            reverse_sql="DROP INDEX CONCURRENTLY IF EXISTS django_jobs_job_past_key",
        )
    ]
