-- Stage entries in the caller's transaction. With {unless_live} an entry whose key a live job
-- holds is left out; the caller of this statement then reads who holds it. What asks for room in
-- its queue waits in that queue's buffer.
INSERT INTO django_jobs_outbox (
    id, name, queue, priority, tenant, idempotency_key, lane, payload, run_at, max_attempts,
    timeout, on_conflict, traceparent, enqueued_by, release, batch, staged_at, buffer
)
SELECT
    id, name, queue, priority, tenant, idempotency_key, lane, payload, due, max_attempts,
    timeout, on_conflict, traceparent, enqueued_by, release, batch, statement_timestamp(),
    CASE WHEN bypass OR lane IS NOT NULL OR due > statement_timestamp() THEN '' ELSE queue END
FROM (
    SELECT *, COALESCE(run_at, statement_timestamp() + make_interval(secs => delay)) AS due
    FROM {called}
) AS called
WHERE TRUE {unless_live}
ORDER BY position
RETURNING id
