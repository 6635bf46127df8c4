-- Is there anything to do? One statement for every loop of an idle worker.
-- Each question is the first row in the order of its index. An EXISTS would be answered by a
-- walk through the whole table whenever the planner expects many such rows and there are none:
-- it takes "delayed" and "due by now" for independent, and history makes the latter likely.
SELECT
    (
        SELECT TRUE FROM django_jobs_outbox
        WHERE outcome IS NULL ORDER BY buffer, tenant, seq LIMIT 1
    ) IS NOT NULL
    OR (
        SELECT TRUE FROM django_jobs_job
        WHERE state = 'ready' AND blocked AND lane IS NOT NULL AND concurrency_key IS NULL
        ORDER BY queue, tenant, run_at, id LIMIT 1
    ) IS NOT NULL,
    due.earliest IS NOT NULL AND due.earliest <= statement_timestamp(),
    EXISTS (
        SELECT FROM unnest((%(queues)s)::text[]) AS asked (queue), LATERAL (
            SELECT FROM django_jobs_job
            WHERE state = 'ready' AND NOT blocked AND queue = asked.queue
            ORDER BY priority, run_at, id
            LIMIT 1
        ) AS head
    ),
    (
        SELECT TRUE FROM django_jobs_job WHERE state = 'running'
        ORDER BY lease_expires_at LIMIT 1
    ) IS NOT NULL,
    (
        SELECT TRUE FROM django_jobs_job
        WHERE state = 'ready' AND crashes >= 2 AND queue = ANY((%(queues)s)::text[])
        ORDER BY queue LIMIT 1
    ) IS NOT NULL,
    EXTRACT(EPOCH FROM due.earliest - statement_timestamp())::float8
FROM (
    SELECT min(run_at) AS earliest FROM django_jobs_job WHERE state IN ('delayed', 'suspended')
) AS due
