-- Settle successful runs. The lease token is the fence; it stays on the row, so that a repeat
-- after a lost reply can be told from a loss. Rows are locked in id order, as by every
-- statement that changes several live rows.
-- The state comes from a CTE, not as a constant: with statistics from a time when nothing ran,
-- the planner would walk the index of running rows once for each row.
WITH called AS MATERIALIZED (SELECT *, 'running' AS state FROM {called}),
held AS MATERIALIZED (
    SELECT job.id, called.state, called.lease, called.result
    FROM called
    JOIN django_jobs_job AS job ON job.id = called.id
    WHERE job.lease = called.lease AND job.state = called.state
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
)
UPDATE django_jobs_job AS job
SET state = 'done',
    result = held.result::jsonb,
    lease_expires_at = NULL,
    finished_at = statement_timestamp()
FROM held
WHERE job.id = held.id AND job.lease = held.lease AND job.state = held.state
RETURNING job.id
