-- Settle successful runs. The lease token is the fence; it stays on the row, so that a repeat
-- after a lost reply can be told from a loss. Rows are locked in id order, as by every
-- statement that changes several live rows.
WITH called AS MATERIALIZED (SELECT * FROM {called}),
held AS MATERIALIZED (
    SELECT job.id, called.lease, called.result
    FROM called
    JOIN django_jobs_job AS job ON job.id = called.id
    WHERE job.lease = called.lease AND job.state = 'running'
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
)
UPDATE django_jobs_job AS job
SET state = 'done',
    result = held.result::jsonb,
    lease_expires_at = NULL,
    finished_at = statement_timestamp()
FROM held
WHERE job.id = held.id AND job.lease = held.lease AND job.state = 'running'
RETURNING job.id
