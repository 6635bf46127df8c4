-- The twin of wake_answered.sql.
UPDATE django_jobs_job
SET state = 'ready', run_at = MIN(run_at, {now})
WHERE id IN (
    SELECT job.id
    FROM django_jobs_job AS job
    WHERE job.state = 'suspended'
        AND job.id IN (SELECT job_id FROM django_jobs_step WHERE status = 'answered')
    ORDER BY job.priority, job.run_at
    LIMIT %(limit)s
)
RETURNING queue, id
