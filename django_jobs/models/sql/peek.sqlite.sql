-- The twin of peek.sql.
SELECT
    EXISTS (SELECT 1 FROM django_jobs_outbox WHERE outcome IS NULL)
    OR EXISTS (
        SELECT 1 FROM django_jobs_job
        WHERE state = 'ready' AND blocked AND blocked = 1 AND lane IS NOT NULL AND concurrency_key IS NULL
    ),
    EXISTS (
        SELECT 1 FROM django_jobs_job WHERE state IN ('delayed', 'suspended') AND run_at <= {now}
    ),
    EXISTS (
        SELECT 1 FROM django_jobs_job
        WHERE state = 'ready' AND NOT blocked AND blocked = 0
            AND queue IN (SELECT value FROM json_each(%(queues)s))
    ),
    EXISTS (SELECT 1 FROM django_jobs_job WHERE state = 'running'),
    EXISTS (
        SELECT 1 FROM django_jobs_job
        WHERE state = 'ready' AND crashes >= 2
            AND queue IN (SELECT value FROM json_each(%(queues)s))
    ),
    (
        SELECT (julianday(min(run_at)) - julianday('now')) * 86400.0
        FROM django_jobs_job
        WHERE state IN ('delayed', 'suspended')
    )
