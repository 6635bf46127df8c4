-- Supersede the live jobs that hold the keys of these entries in the same lane and were claimed
-- already: what they read may be older than the entry. One that was never claimed keeps its key.
WITH holder AS MATERIALIZED (
    SELECT job.id, called.id AS usurper
    FROM {called}
    JOIN django_jobs_job AS job
        ON job.name = called.name
        AND job.tenant = called.tenant
        AND job.idempotency_key = called.idempotency_key
        AND job.state IN ('ready', 'delayed', 'running', 'suspended')
    WHERE job.lane = called.lane AND job.id <> called.id
        AND NOT (job.lease IS NULL AND job.attempt = 0 AND job.started_at IS NULL)
        AND NOT EXISTS (SELECT 1 FROM django_jobs_job AS same WHERE same.id = called.id)
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
)
UPDATE django_jobs_job AS job
SET state = 'cancelled',
    superseded_by = holder.usurper,
    lease = NULL,
    blocked = FALSE,
    reason = 'superseded',
    finished_at = statement_timestamp()
FROM holder
WHERE job.id = holder.id AND job.state IN ('ready', 'delayed', 'running', 'suspended')
RETURNING
    job.id, job.name, job.tenant, job.lane, job.superseded_by,
    job.lease_expires_at, job.state
