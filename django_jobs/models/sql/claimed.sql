-- What is still ours of a claim, locked, in order.
-- No outcome yet, said so that no partial index fits: with statistics from a time when nothing was
-- staged, the planner would walk all that is pending for each batch.
SELECT
    seq, on_conflict, id, name, queue, priority, tenant, idempotency_key, lane, payload, run_at,
    max_attempts, timeout, traceparent, enqueued_by, release, staged_at
FROM django_jobs_outbox
WHERE seq = ANY((%(seqs)s)::bigint[]) AND claimed_by = (%(token)s)::uuid
    AND COALESCE(outcome, '') = ''
ORDER BY seq
FOR UPDATE
