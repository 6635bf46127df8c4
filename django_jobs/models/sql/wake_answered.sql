-- Make suspended jobs ready whose waits are answered. A job that is about to suspend is found by
-- the next look: its answer stays.
UPDATE django_jobs_job
SET state = 'ready', run_at = LEAST(run_at, statement_timestamp())
WHERE ctid = ANY (ARRAY(
    SELECT job.ctid
    FROM django_jobs_job AS job
    JOIN (
        SELECT DISTINCT job_id FROM django_jobs_step WHERE status = 'answered'
    ) AS answered ON answered.job_id = job.id
    WHERE job.state = 'suspended'
    ORDER BY job.priority, job.run_at
    LIMIT (%(limit)s)::int
    FOR UPDATE OF job SKIP LOCKED
))
RETURNING queue, id
