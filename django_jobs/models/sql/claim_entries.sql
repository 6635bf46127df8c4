-- Lease the oldest committed entries to one relay. An order group (what one transaction staged
-- for one tenant) of which an entry is leased, or waits to be tried again, is left alone as a
-- whole: nobody may publish the later ones first. So is what follows an entry that somebody holds
-- locked, a canceller maybe that will roll back.
WITH held AS MATERIALIZED (
    SELECT DISTINCT batch, tenant
    FROM django_jobs_outbox
    WHERE outcome IS NULL AND (claimed_until IS NOT NULL OR next_try_at IS NOT NULL)
        AND (claimed_until > statement_timestamp() OR next_try_at > statement_timestamp())
),
free AS MATERIALIZED (
    SELECT seq, batch, tenant
    FROM django_jobs_outbox AS entry
    WHERE outcome IS NULL
        AND NOT EXISTS (
            SELECT FROM held WHERE held.batch = entry.batch AND held.tenant = entry.tenant
        )
    ORDER BY seq
    LIMIT (%(limit)s)::int
    FOR UPDATE SKIP LOCKED
),
passed_over AS MATERIALIZED (
    SELECT batch, tenant, min(seq) AS earliest
    FROM django_jobs_outbox
    WHERE outcome IS NULL
        AND seq < (SELECT max(seq) FROM free) AND seq NOT IN (SELECT seq FROM free)
    GROUP BY batch, tenant
)
UPDATE django_jobs_outbox
SET claimed_by = (%(token)s)::uuid,
    claimed_until = statement_timestamp() + make_interval(secs => (%(lease)s)::float8)
WHERE seq IN (
    SELECT seq
    FROM free
    WHERE NOT EXISTS (
        SELECT FROM passed_over
        WHERE passed_over.batch = free.batch AND passed_over.tenant = free.tenant
            AND passed_over.earliest < free.seq
    )
)
RETURNING seq, name, tenant, lane
