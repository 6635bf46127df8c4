-- The twin of steps.sql.
SELECT
    name, kind, status, position, version, output, attempts, error_class, error,
    (julianday(wake_at) - julianday('now')) * 86400.0,
    event, match, tenant, event_seq, child
FROM django_jobs_step
WHERE run_id = %(run)s
