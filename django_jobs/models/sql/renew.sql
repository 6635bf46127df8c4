-- Extend the leases of one process. A row that a body or a canceller holds locked is passed
-- over: waiting for it would let every other lease run out.
-- The state comes from a CTE, not as a constant: with statistics from a time when nothing ran,
-- the planner would walk the index of running rows once for each row.
WITH called AS MATERIALIZED (SELECT *, 'running' AS state FROM {called}),
held AS MATERIALIZED (
    SELECT job.id, called.state, called.lease
    FROM called
    JOIN django_jobs_job AS job ON job.id = called.id
    WHERE job.lease = called.lease AND job.state = called.state
    ORDER BY job.id
    FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE django_jobs_job AS job
SET lease_expires_at = statement_timestamp() + make_interval(secs => (%(lease)s)::float8)
FROM held
WHERE job.id = held.id AND job.lease = held.lease AND job.state = held.state
RETURNING job.id
