-- The twin of remember.sql.
INSERT INTO django_jobs_step AS step (
    run_id, name, job_id, position, kind, status, version, output, attempts, error_class, error,
    wake_at, event, match, tenant, event_seq, child, started_at, ended_at
)
SELECT
    held.run_id, called.name, held.id, called.position_, kind, status, version, output, attempts,
    error_class, error, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', wait || ' seconds'), event,
    match, tenant, event_seq, child, {now},
    CASE WHEN status IN ('done', 'failed', 'timed_out', 'closed') THEN {now} END
FROM (
    SELECT id, run_id
    FROM django_jobs_job
    WHERE id = %(job)s AND lease = %(lease)s AND state = 'running'
) AS held, {called}
WHERE TRUE
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
RETURNING name, (julianday(wake_at) - julianday('now')) * 86400.0
