-- The twin of publish.sql.
INSERT INTO django_jobs_job (
    id, run_id, name, queue, priority, tenant, idempotency_key, lane, lane_token, payload, state,
    blocked, run_at, max_attempts, timeout, traceparent, enqueued_by, release, created_at
)
SELECT
    id, id, name, queue, priority, tenant, idempotency_key, lane, lane_token, payload,
    CASE WHEN due > {now} THEN 'delayed' ELSE 'ready' END,
    COALESCE(blocked, FALSE) AND NOT COALESCE(due > {now}, FALSE),
    COALESCE(due, MIN(COALESCE(staged_at, {now}), {now})),
    max_attempts, timeout, traceparent, enqueued_by, release,
    COALESCE(staged_at, {now})
FROM (
    SELECT
        called.*,
        COALESCE(run_at, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', delay || ' seconds')) AS due
    FROM {called}
    WHERE NOT EXISTS (SELECT 1 FROM django_jobs_job AS same WHERE same.id = called.id)
) AS entry
WHERE TRUE
ORDER BY name, tenant, idempotency_key, position
ON CONFLICT (name, tenant, idempotency_key)
    WHERE state IN ('ready', 'delayed', 'running', 'suspended') DO NOTHING
RETURNING id, MAX(0.0, (julianday(run_at) - julianday({now})) * 86400)
