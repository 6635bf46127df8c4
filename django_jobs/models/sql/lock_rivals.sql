-- Lock the entries of a claim, and those of their lanes that were staged earlier and have become
-- nothing yet, all in seq order. Those that are not of the claim are what it may displace.
SELECT seq, name, tenant, lane
FROM django_jobs_outbox
WHERE (outcome IS NULL OR outcome = 'quarantined')
    AND seq IN (
        SELECT called.seq FROM {called} WHERE called.seq IS NOT NULL
        UNION
        SELECT entry.seq
        FROM {called}
        JOIN django_jobs_outbox AS entry
            ON entry.name = called.name
            AND entry.tenant = called.tenant
            AND entry.lane = called.lane
            AND (entry.outcome IS NULL OR entry.outcome = 'quarantined')
        WHERE called.seq IS NULL OR entry.seq < called.seq
    )
ORDER BY seq
FOR UPDATE
