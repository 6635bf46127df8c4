-- What is still ours of a claim, locked, in order.
SELECT
    seq, on_conflict, id, name, queue, priority, tenant, idempotency_key, lane, payload, run_at,
    max_attempts, timeout, traceparent, enqueued_by, release, staged_at
FROM django_jobs_outbox
WHERE seq = ANY((%(seqs)s)::bigint[]) AND claimed_by = (%(token)s)::uuid AND outcome IS NULL
ORDER BY seq
FOR UPDATE
