-- Give rows that were published over their queue's limit the room that has appeared: for each
-- tenant the oldest, and these in turn, as in claim_entries.sql.
WITH RECURSIVE opened AS MATERIALIZED (
    SELECT buffer AS queue, room, after FROM {called}
),
walk (queue, tenant) AS (
    SELECT opened.queue, COALESCE(
        (
            SELECT job.tenant FROM django_jobs_job AS job
            WHERE job.state = 'ready' AND job.blocked AND job.lane IS NOT NULL
                AND job.concurrency_key IS NULL
                AND job.queue = opened.queue AND job.tenant > opened.after
            ORDER BY job.tenant, job.run_at, job.id LIMIT 1
        ),
        (
            SELECT job.tenant FROM django_jobs_job AS job
            WHERE job.state = 'ready' AND job.blocked AND job.lane IS NOT NULL
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
            WHERE job.state = 'ready' AND job.blocked AND job.lane IS NOT NULL
                AND job.concurrency_key IS NULL
                AND job.queue = walk.queue AND job.tenant > walk.tenant
            ORDER BY job.tenant, job.run_at, job.id LIMIT 1
        ),
        (
            SELECT job.tenant FROM django_jobs_job AS job
            WHERE job.state = 'ready' AND job.blocked AND job.lane IS NOT NULL
                AND job.concurrency_key IS NULL
                AND job.queue = walk.queue
            ORDER BY job.tenant, job.run_at, job.id LIMIT 1
        )
    )
    FROM walk
),
places AS MATERIALIZED (
    SELECT queue, tenant, row_number() OVER () AS place
    FROM walk
    LIMIT 500
),
oldest AS (
    SELECT
        job.id, places.queue, places.tenant, places.place,
        row_number() OVER (PARTITION BY places.place ORDER BY job.run_at, job.id) AS round
    FROM places
    JOIN opened ON opened.queue = places.queue, LATERAL (
        SELECT id, run_at
        FROM django_jobs_job
        WHERE state = 'ready' AND blocked AND lane IS NOT NULL AND concurrency_key IS NULL
            AND queue = places.queue AND tenant = places.tenant
        ORDER BY run_at, id
        LIMIT GREATEST(1, 4 * opened.room / (SELECT count(*) FROM places))
    ) AS job
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
),
locked AS MATERIALIZED (
    SELECT id
    FROM django_jobs_job
    WHERE id = ANY (ARRAY(SELECT id FROM chosen)) AND state = 'ready' AND blocked
    ORDER BY id
    FOR UPDATE SKIP LOCKED
)
UPDATE django_jobs_job AS job
SET blocked = FALSE
FROM chosen
WHERE job.id = chosen.id AND job.id = ANY (ARRAY(SELECT id FROM locked))
    AND job.state = 'ready' AND job.blocked
RETURNING job.id, job.queue, job.tenant, chosen.turn
