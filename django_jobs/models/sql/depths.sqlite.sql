-- The twin of depths.sql.
WITH RECURSIVE waiting (queue) AS (
    SELECT (
        SELECT queue FROM django_jobs_job
        WHERE state = 'ready' AND blocked AND blocked = 1 AND lane IS NOT NULL AND concurrency_key IS NULL
        ORDER BY queue, tenant, run_at, id LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT job.queue FROM django_jobs_job AS job
        WHERE job.state = 'ready' AND job.blocked AND job.blocked = 1 AND job.lane IS NOT NULL
            AND job.concurrency_key IS NULL AND job.queue > waiting.queue
        ORDER BY job.queue, job.tenant, job.run_at, job.id LIMIT 1
    )
    FROM waiting
    WHERE waiting.queue IS NOT NULL
),
asked (queue) AS (
    SELECT value AS queue FROM json_each(%(queues)s)
    UNION
    SELECT queue FROM waiting WHERE queue IS NOT NULL
)
SELECT
    asked.queue,
    (
        SELECT count(*)
        FROM (
            SELECT 1 FROM django_jobs_job AS job
            WHERE job.state = 'ready' AND NOT job.blocked AND job.blocked = 0 AND job.queue = asked.queue
            ORDER BY job.priority, job.run_at, job.id
            LIMIT %(bound)s
        ) AS ready
    ),
    asked.queue IN (SELECT queue FROM waiting WHERE queue IS NOT NULL)
FROM asked
