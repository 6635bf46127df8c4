-- Stage entries in the caller's transaction. With {unless_live} an entry whose key a live job
-- holds is left out; the caller of this statement then reads who holds it.
INSERT INTO django_jobs_outbox (
    id, name, queue, priority, tenant, idempotency_key, lane, payload, run_at, max_attempts,
    timeout, on_conflict, traceparent, enqueued_by, release, batch, staged_at
)
SELECT
    id, name, queue, priority, tenant, idempotency_key, lane, payload,
    COALESCE(run_at, statement_timestamp() + make_interval(secs => delay)), max_attempts,
    timeout, on_conflict, traceparent, enqueued_by, release, batch, statement_timestamp()
FROM {called}
WHERE TRUE {unless_live}
ORDER BY position
RETURNING id
