-- Answer the steps that wait for a job which is neither live nor about to be published.
-- "Not live" also says: pruned, or deduplicated onto another; the run finds out which.
WITH held AS MATERIALIZED (
    SELECT step.run_id, step.name
    FROM django_jobs_step AS step
    WHERE step.status = 'waiting' AND step.child IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM django_jobs_job AS job
            WHERE job.id = step.child AND job.state IN ('ready', 'delayed', 'running', 'suspended')
        )
        AND NOT EXISTS (
            SELECT FROM django_jobs_outbox AS entry
            WHERE entry.id = step.child AND COALESCE(entry.outcome, '') = ''
        )
    ORDER BY step.run_id, step.name
    LIMIT (%(limit)s)::int
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE django_jobs_step AS step
SET status = 'answered'
FROM held
WHERE step.run_id = held.run_id AND step.name = held.name AND step.status = 'waiting'
RETURNING step.job_id
