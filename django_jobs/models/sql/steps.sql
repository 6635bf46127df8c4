-- Everything that a run remembers, in one statement.
SELECT
    name, kind, status, position, version, output, attempts, error_class, error,
    EXTRACT(EPOCH FROM wake_at - statement_timestamp())::float8,
    event, match, tenant, event_seq, child
FROM django_jobs_step
WHERE run_id = (%(run)s)::uuid
