-- The twin of stage.sql.
INSERT INTO django_jobs_outbox (
    id, name, queue, priority, tenant, idempotency_key, lane, payload, run_at, max_attempts,
    timeout, on_conflict, traceparent, enqueued_by, release, batch, staged_at
)
SELECT
    id, name, queue, priority, tenant, idempotency_key, lane, payload,
    COALESCE(run_at, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', delay || ' seconds')),
    max_attempts,
    timeout, on_conflict, traceparent, enqueued_by, release, batch, {now}
FROM {called}
WHERE TRUE {unless_live}
ORDER BY position
RETURNING id
