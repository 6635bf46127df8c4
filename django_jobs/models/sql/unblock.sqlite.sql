-- The twin of unblock.sql. It chooses; the caller changes what it chose.
WITH RECURSIVE opened AS MATERIALIZED (
    SELECT buffer AS queue, room, after FROM {called}
),
walk (queue, tenant) AS (
    SELECT opened.queue, COALESCE(
        (
            SELECT job.tenant FROM django_jobs_job AS job
            WHERE job.state = 'ready' AND job.blocked AND job.blocked = 1 AND job.lane IS NOT NULL
                AND job.concurrency_key IS NULL
                AND job.queue = opened.queue AND job.tenant > opened.after
            ORDER BY job.tenant, job.run_at, job.id LIMIT 1
        ),
        (
            SELECT job.tenant FROM django_jobs_job AS job
            WHERE job.state = 'ready' AND job.blocked AND job.blocked = 1 AND job.lane IS NOT NULL
                AND job.concurrency_key IS NULL
                AND job.queue = opened.queue
            ORDER BY job.tenant, job.run_at, job.id LIMIT 1
        )
    )
    FROM opened
    UNION
    SELECT walk.queue, COALESCE(
        (
            SELECT job.tenant FROM django_jobs_job AS job
            WHERE job.state = 'ready' AND job.blocked AND job.blocked = 1 AND job.lane IS NOT NULL
                AND job.concurrency_key IS NULL
                AND job.queue = walk.queue AND job.tenant > walk.tenant
            ORDER BY job.tenant, job.run_at, job.id LIMIT 1
        ),
        (
            SELECT job.tenant FROM django_jobs_job AS job
            WHERE job.state = 'ready' AND job.blocked AND job.blocked = 1 AND job.lane IS NOT NULL
                AND job.concurrency_key IS NULL
                AND job.queue = walk.queue
            ORDER BY job.tenant, job.run_at, job.id LIMIT 1
        )
    )
    FROM walk
    LIMIT 500
),
places AS MATERIALIZED (
    SELECT queue, tenant, row_number() OVER () AS place
    FROM walk
),
oldest AS (
    SELECT
        job.id, places.queue, places.tenant, places.place,
        row_number() OVER (PARTITION BY places.place ORDER BY job.run_at, job.id) AS round
    FROM places
    CROSS JOIN opened
    CROSS JOIN django_jobs_job AS job
    WHERE opened.queue = places.queue AND job.id IN (
        SELECT head.id
        FROM django_jobs_job AS head
        WHERE head.state = 'ready' AND head.blocked AND head.blocked = 1 AND head.lane IS NOT NULL
            AND head.concurrency_key IS NULL
            AND head.queue = places.queue AND head.tenant = places.tenant
        ORDER BY head.run_at, head.id
        LIMIT (
            SELECT MAX(1, 4 * MAX(opened.room) / (SELECT count(*) FROM places)) FROM opened
        )
    )
),
chosen AS MATERIALIZED (
    SELECT id, queue, tenant, turn
    FROM (
        SELECT
            oldest.*,
            row_number() OVER (PARTITION BY queue ORDER BY round, place) AS turn
        FROM oldest
    ) AS ranked
    JOIN opened USING (queue)
    WHERE turn <= opened.room
)
SELECT id, queue, tenant, turn FROM chosen
