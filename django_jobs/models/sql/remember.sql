-- Store steps, if the run still has its job. The job's row is locked first, so that nobody can
-- take it over between the look and the commit. A step that is stored again keeps its start.
WITH held AS MATERIALIZED (
    SELECT id, run_id
    FROM django_jobs_job
    WHERE id = (%(job)s)::uuid AND lease = (%(lease)s)::uuid AND state = 'running'
    {lock}
)
INSERT INTO django_jobs_step AS step (
    run_id, name, job_id, position, kind, status, version, output, attempts, error_class, error,
    wake_at, event, match, tenant, event_seq, child, started_at, ended_at
)
SELECT
    held.run_id, called.name, held.id, called.position_, kind, status, version, output, attempts,
    error_class, error, statement_timestamp() + make_interval(secs => wait), event, match, tenant,
    event_seq, child, statement_timestamp(),
    CASE WHEN status IN ('done', 'failed', 'timed_out', 'closed') THEN statement_timestamp() END
FROM held, {called}
ON CONFLICT (run_id, name) DO UPDATE
SET status = excluded.status,
    output = excluded.output,
    attempts = excluded.attempts,
    error_class = excluded.error_class,
    error = excluded.error,
    wake_at = COALESCE(excluded.wake_at, step.wake_at),
    event_seq = excluded.event_seq,
    child = COALESCE(excluded.child, step.child),
    ended_at = excluded.ended_at
RETURNING name, EXTRACT(EPOCH FROM wake_at - statement_timestamp())::float8
