-- The twin of answer_parents.sql.
UPDATE django_jobs_step
SET status = 'answered'
WHERE status = 'waiting' AND child IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_job AS job
        WHERE job.id = child AND job.state IN ('ready', 'delayed', 'running', 'suspended')
    )
    AND NOT EXISTS (
        SELECT 1 FROM django_jobs_outbox AS entry
        WHERE entry.id = child AND entry.outcome IS NULL
    )
RETURNING job_id
