-- The twin of stage.sql.
INSERT INTO django_jobs_outbox (
    id, name, queue, priority, tenant, idempotency_key, lane, payload, run_at, max_attempts,
    timeout, on_conflict, traceparent, enqueued_by, release, batch, staged_at, buffer
)
SELECT
    id, name, queue, priority, tenant, idempotency_key, lane, payload, due, max_attempts,
    timeout, on_conflict, traceparent, enqueued_by, release, batch, {now},
    CASE WHEN bypass OR lane IS NOT NULL OR due > {now} THEN '' ELSE queue END
FROM (
    SELECT *, COALESCE(run_at, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', delay || ' seconds')) AS due
    FROM {called}
) AS called
WHERE TRUE {unless_live}
ORDER BY position
RETURNING id
