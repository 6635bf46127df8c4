-- The twin of claimed.sql.
SELECT
    seq, on_conflict, id, name, queue, priority, tenant, idempotency_key, lane, payload, run_at,
    max_attempts, timeout, traceparent, enqueued_by, release, staged_at
FROM django_jobs_outbox
WHERE seq IN (SELECT value FROM json_each(%(seqs)s)) AND claimed_by = %(token)s
    AND outcome IS NULL
ORDER BY seq
