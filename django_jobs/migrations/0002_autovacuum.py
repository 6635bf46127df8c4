"""Queue tables turn over faster than autovacuum's defaults, which wait for a fifth of a table."""

from django.db import migrations

from django_jobs.migrations._postgres_only import PostgresOnly

TABLES = ("django_jobs_job", "django_jobs_outbox")
SETTINGS = {
    "autovacuum_vacuum_scale_factor": "0.01",
    "autovacuum_vacuum_threshold": "2000",
    "autovacuum_analyze_scale_factor": "0.02",
    "autovacuum_vacuum_cost_delay": "0",
}


class Migration(migrations.Migration):
    dependencies = [("django_jobs", "0001_initial")]

    operations = [
        PostgresOnly(
            sql=f"ALTER TABLE {table} SET ({', '.join(f'{k} = {v}' for k, v in SETTINGS.items())})",
            reverse_sql=f"ALTER TABLE {table} RESET ({', '.join(SETTINGS)})",
        )
        for table in TABLES
    ]
