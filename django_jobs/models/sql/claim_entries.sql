-- Lease committed entries to one relay: for each buffer and tenant the oldest, and these in turn.
-- The walk jumps from tenant to tenant in the index and begins after the tenant that was served
-- last, so what it costs does not depend on how much anyone has staged.
-- An order group (what one transaction staged for one tenant) of which an entry is leased, waits
-- to be tried again, or is locked by somebody, is left alone as a whole: nobody may publish the
-- later ones first. Of each tenant only the first entries are looked at, lest a large group that
-- is held be walked through by every claim.
WITH RECURSIVE held AS MATERIALIZED (
    SELECT batch, tenant, name, lane
    FROM django_jobs_outbox
    WHERE outcome IS NULL AND (claimed_until IS NOT NULL OR next_try_at IS NOT NULL)
        AND (claimed_until > statement_timestamp() OR next_try_at > statement_timestamp())
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
    SELECT buffers.buffer, COALESCE(called.room, (%(limit)s)::int) AS room, called.after
    FROM buffers
    LEFT JOIN {called} ON called.buffer = buffers.buffer
    WHERE buffers.buffer IS NOT NULL AND COALESCE(called.room, 1) > 0
),
-- Round and round: UNION drops what was there before, and so ends it.
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
),
places AS MATERIALIZED (
    SELECT buffer, tenant, row_number() OVER () AS place
    FROM walk
    LIMIT (%(limit)s)::int
),
share AS MATERIALIZED (
    SELECT GREATEST(1, LEAST((%(limit)s)::int, 2 * (%(limit)s)::int / GREATEST(count(*), 1)))
        AS size
    FROM places
),
oldest AS (
    SELECT
        entry.seq, entry.batch, places.tenant, places.buffer, places.place,
        row_number() OVER (PARTITION BY places.place ORDER BY entry.seq) AS round
    FROM places, LATERAL (
        SELECT near.seq, near.batch
        FROM (
            SELECT seq, batch, tenant, name, lane
            FROM django_jobs_outbox
            -- Said so that only this index is in this order: the primary key's holds all history.
            WHERE outcome IS NULL AND buffer = places.buffer
                AND tenant >= places.tenant AND tenant <= places.tenant
            ORDER BY tenant, seq
            LIMIT (SELECT 100 + 4 * size FROM share)
        ) AS near
        WHERE (near.batch, near.tenant) NOT IN (SELECT batch, tenant FROM held)
        ORDER BY near.tenant, near.seq
        LIMIT (SELECT size FROM share)
    ) AS entry
),
chosen AS MATERIALIZED (
    SELECT seq, batch, tenant, row_number() OVER (ORDER BY round, place) AS turn
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
    LIMIT (%(limit)s)::int
),
-- No outcome yet, said so that no partial index fits: see mark.sql.
locked AS MATERIALIZED (
    SELECT seq
    FROM django_jobs_outbox
    WHERE seq = ANY (ARRAY(SELECT seq FROM chosen)) AND COALESCE(outcome, '') = ''
    ORDER BY seq
    FOR UPDATE SKIP LOCKED
),
free AS MATERIALIZED (
    SELECT seq, turn
    FROM chosen
    WHERE (batch, tenant) NOT IN (
        SELECT batch, tenant FROM chosen WHERE seq NOT IN (SELECT seq FROM locked)
    )
)
UPDATE django_jobs_outbox AS entry
SET claimed_by = (%(token)s)::uuid,
    claimed_until = statement_timestamp() + make_interval(secs => (%(lease)s)::float8)
FROM free
WHERE entry.seq = free.seq AND entry.seq = ANY (ARRAY(SELECT seq FROM free))
    -- Beside jobs in another database: a lane's entries in their order, by one relay at a time.
    AND NOT (
        (%(apart)s)::bool AND entry.lane IS NOT NULL
        AND (
            (entry.name, entry.tenant, entry.lane) IN (
                SELECT name, tenant, lane FROM held WHERE lane IS NOT NULL
            )
            OR EXISTS (
                SELECT FROM django_jobs_outbox AS earlier
                WHERE earlier.name = entry.name AND earlier.tenant = entry.tenant
                    AND earlier.lane = entry.lane AND earlier.lane IS NOT NULL
                    AND earlier.outcome IS NULL AND earlier.seq < entry.seq
                    AND earlier.seq NOT IN (SELECT seq FROM free)
            )
        )
    )
RETURNING
    entry.seq, entry.name, entry.tenant, entry.lane, entry.queue, entry.buffer, free.turn
