"""A call that is staged alone goes through a function, whose plans PostgreSQL keeps per session."""

from django.db import migrations

from django_jobs.migrations._postgres_only import PostgresOnly

# One argument holds the whole entry, so that the signature outlives new columns. The answer is the
# live job that holds the entry's key; then nothing was inserted. A snapshot that is older than the
# statement may show a holder that has finished since, so at other isolation levels nobody looks.
CREATE = """
CREATE FUNCTION django_jobs_stage(document json, look boolean) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
    entry django_jobs_outbox := json_populate_record(NULL::django_jobs_outbox, document);
    due timestamptz := COALESCE(
        entry.run_at, statement_timestamp() + make_interval(secs => (document ->> 'delay')::float8)
    );
    holder uuid;
BEGIN
    IF look AND current_setting('transaction_isolation') = 'read committed' THEN
        SELECT id INTO holder
        FROM django_jobs_job
        WHERE name = entry.name AND tenant = entry.tenant
            AND idempotency_key = entry.idempotency_key
            AND state IN ('ready', 'delayed', 'running', 'suspended');
        IF FOUND THEN
            RETURN holder;
        END IF;
    END IF;
    INSERT INTO django_jobs_outbox (
        id, name, queue, priority, tenant, idempotency_key, lane, payload, run_at, max_attempts,
        timeout, on_conflict, traceparent, enqueued_by, release, batch, staged_at, buffer
    ) VALUES (
        entry.id, entry.name, entry.queue, entry.priority, entry.tenant, entry.idempotency_key,
        entry.lane, entry.payload, due, entry.max_attempts, entry.timeout, entry.on_conflict,
        entry.traceparent, entry.enqueued_by, entry.release, entry.batch, statement_timestamp(),
        CASE
            WHEN (document ->> 'bypass')::boolean OR entry.lane IS NOT NULL
                OR due > statement_timestamp() THEN ''
            ELSE entry.queue
        END
    );
    RETURN NULL;
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [("django_jobs", "0006_overflow")]

    operations = [
        PostgresOnly(
            sql=CREATE,
            reverse_sql="DROP FUNCTION django_jobs_stage(json, boolean)",
            # Wherever a router puts the outbox, not only where it puts the jobs.
            hints={"model_name": "outbox"},
        )
    ]
