-- The twin of claim_entries.sql. It chooses; what it chose is leased by the caller, in the same
-- transaction, since RETURNING could not tell the turn.
WITH RECURSIVE held AS MATERIALIZED (
    SELECT batch, tenant, name, lane
    FROM django_jobs_outbox
    WHERE outcome IS NULL AND (claimed_until IS NOT NULL OR next_try_at IS NOT NULL)
        AND (claimed_until > {now} OR next_try_at > {now})
),
buffers (buffer) AS (
    SELECT (
        SELECT buffer FROM django_jobs_outbox
        WHERE outcome IS NULL ORDER BY buffer, tenant, seq LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT entry.buffer FROM django_jobs_outbox AS entry
        WHERE entry.outcome IS NULL AND entry.buffer > buffers.buffer
        ORDER BY entry.buffer, entry.tenant, entry.seq LIMIT 1
    )
    FROM buffers
    WHERE buffers.buffer IS NOT NULL
),
opened AS MATERIALIZED (
    SELECT buffers.buffer, COALESCE(called.room, %(limit)s) AS room, called.after
    FROM buffers
    LEFT JOIN {called} ON called.buffer = buffers.buffer
    WHERE buffers.buffer IS NOT NULL AND COALESCE(called.room, 1) > 0
),
walk (buffer, tenant) AS (
    SELECT opened.buffer, COALESCE(
        (
            SELECT entry.tenant FROM django_jobs_outbox AS entry
            WHERE entry.outcome IS NULL AND entry.buffer = opened.buffer
                AND entry.tenant > opened.after
            ORDER BY entry.tenant, entry.seq LIMIT 1
        ),
        (
            SELECT entry.tenant FROM django_jobs_outbox AS entry
            WHERE entry.outcome IS NULL AND entry.buffer = opened.buffer
            ORDER BY entry.tenant, entry.seq LIMIT 1
        )
    )
    FROM opened
    UNION
    SELECT walk.buffer, COALESCE(
        (
            SELECT entry.tenant FROM django_jobs_outbox AS entry
            WHERE entry.outcome IS NULL AND entry.buffer = walk.buffer
                AND entry.tenant > walk.tenant
            ORDER BY entry.tenant, entry.seq LIMIT 1
        ),
        (
            SELECT entry.tenant FROM django_jobs_outbox AS entry
            WHERE entry.outcome IS NULL AND entry.buffer = walk.buffer
            ORDER BY entry.tenant, entry.seq LIMIT 1
        )
    )
    FROM walk
    LIMIT %(limit)s
),
places AS MATERIALIZED (
    SELECT buffer, tenant, row_number() OVER () AS place FROM walk
),
share AS MATERIALIZED (
    SELECT MAX(1, MIN(%(limit)s, 2 * %(limit)s / MAX(count(*), 1))) AS size FROM places
),
oldest AS (
    SELECT
        entry.seq, places.tenant, places.buffer, places.place,
        row_number() OVER (PARTITION BY places.place ORDER BY entry.seq) AS round
    FROM places
    CROSS JOIN django_jobs_outbox AS entry
    WHERE entry.seq IN (
        SELECT near.seq
        FROM (
            SELECT seq, batch, tenant
            FROM django_jobs_outbox AS head
            WHERE head.outcome IS NULL AND head.buffer = places.buffer
                AND head.tenant = places.tenant
            ORDER BY head.seq
            LIMIT (SELECT 100 + 4 * size FROM share)
        ) AS near
        WHERE (near.batch, near.tenant) NOT IN (SELECT batch, tenant FROM held)
        ORDER BY near.seq
        LIMIT (SELECT size FROM share)
    )
),
chosen AS MATERIALIZED (
    SELECT seq, row_number() OVER (ORDER BY round, place) AS turn
    FROM (
        SELECT
            oldest.*,
            row_number() OVER (PARTITION BY oldest.buffer ORDER BY round, place) <= opened.room
                AS fits
        FROM oldest
        JOIN opened ON opened.buffer = oldest.buffer
    ) AS ranked
    WHERE fits
    ORDER BY round, place
    LIMIT %(limit)s
)
SELECT entry.seq, entry.name, entry.tenant, entry.lane, entry.queue, entry.buffer, chosen.turn
FROM chosen
CROSS JOIN django_jobs_outbox AS entry
WHERE entry.seq = chosen.seq
    AND NOT (
        %(apart)s AND entry.lane IS NOT NULL
        AND (
            (entry.name, entry.tenant, entry.lane) IN (
                SELECT name, tenant, lane FROM held WHERE lane IS NOT NULL
            )
            OR EXISTS (
                SELECT 1 FROM django_jobs_outbox AS earlier
                WHERE earlier.name = entry.name AND earlier.tenant = entry.tenant
                    AND earlier.lane = entry.lane AND earlier.lane IS NOT NULL
                    AND earlier.outcome IS NULL AND earlier.seq < entry.seq
                    AND earlier.seq NOT IN (SELECT seq FROM chosen)
            )
        )
    )
