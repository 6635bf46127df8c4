-- The twin of claim_entries.sql.
UPDATE django_jobs_outbox
SET claimed_by = %(token)s,
    claimed_until = {now + lease}
WHERE seq IN (
    SELECT seq
    FROM django_jobs_outbox AS entry
    WHERE outcome IS NULL
        AND NOT EXISTS (
            SELECT 1
            FROM django_jobs_outbox AS held
            WHERE held.outcome IS NULL
                AND (held.claimed_until IS NOT NULL OR held.next_try_at IS NOT NULL)
                AND (held.claimed_until > {now} OR held.next_try_at > {now})
                AND held.batch = entry.batch AND held.tenant = entry.tenant
        )
    ORDER BY seq
    LIMIT %(limit)s
)
RETURNING seq, name, tenant, lane
