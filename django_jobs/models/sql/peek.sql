-- Is there anything to do? One statement for every loop of an idle worker.
SELECT
    EXISTS (SELECT FROM django_jobs_outbox WHERE outcome IS NULL),
    EXISTS (
        SELECT FROM django_jobs_job
        WHERE state IN ('delayed', 'suspended') AND run_at <= statement_timestamp()
    ),
    EXISTS (
        SELECT FROM django_jobs_job
        WHERE state = 'ready' AND NOT blocked AND queue = ANY((%(queues)s)::text[])
    ),
    EXISTS (SELECT FROM django_jobs_job WHERE state = 'running'),
    EXISTS (
        SELECT FROM django_jobs_job
        WHERE state = 'ready' AND crashes >= 2
            AND queue = ANY((%(queues)s)::text[])
    ),
    (
        SELECT EXTRACT(EPOCH FROM min(run_at) - statement_timestamp())::float8
        FROM django_jobs_job
        WHERE state IN ('delayed', 'suspended')
    )
