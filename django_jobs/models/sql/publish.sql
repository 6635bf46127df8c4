-- Insert the jobs that these entries become. Rows go in by key order: two publishers that insert
-- the same keys in opposite orders would wait for each other. A key that a live job holds is
-- left out; the caller reads who holds it.
INSERT INTO django_jobs_job (
    id, run_id, name, queue, priority, tenant, idempotency_key, lane, lane_token, payload, state,
    blocked, run_at, max_attempts, timeout, traceparent, enqueued_by, release, created_at
)
SELECT
    id, id, name, queue, priority, tenant, idempotency_key, lane, lane_token, payload::jsonb,
    CASE WHEN due > statement_timestamp() THEN 'delayed' ELSE 'ready' END,
    COALESCE(blocked, FALSE) AND NOT COALESCE(due > statement_timestamp(), FALSE),
    COALESCE(due, LEAST(staged_at, statement_timestamp())),
    max_attempts, timeout, traceparent, enqueued_by, release,
    COALESCE(staged_at, statement_timestamp())
FROM (
    SELECT
        called.*,
        COALESCE(run_at, statement_timestamp() + make_interval(secs => delay)) AS due
    FROM {called}
    WHERE NOT EXISTS (SELECT FROM django_jobs_job AS same WHERE same.id = called.id)
) AS entry
ORDER BY name, tenant, idempotency_key, position
ON CONFLICT (name, tenant, idempotency_key)
    WHERE state IN ('ready', 'delayed', 'running', 'suspended') DO NOTHING
RETURNING
    id,
    CASE
        WHEN lane IS NOT NULL
            THEN GREATEST(0, EXTRACT(EPOCH FROM run_at - statement_timestamp()))::float8
    END
