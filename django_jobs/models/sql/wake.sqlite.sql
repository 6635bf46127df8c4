-- The twin of wake.sql.
UPDATE django_jobs_job
SET state = 'ready'
WHERE id IN (
    SELECT id
    FROM django_jobs_job
    WHERE state IN ('delayed', 'suspended') AND run_at <= {now}
    ORDER BY priority, run_at
    LIMIT %(limit)s
)
RETURNING queue
