-- Hand the next due rows of one queue to one worker, under one new lease token.
-- The sub-selects run once, lock what they return and pass over what others hold, so that two
-- claims are disjoint and neither waits. `floor_*` is where the last claim began: behind a
-- transaction that keeps dead rows alive, a walk from the head would step over all of them.
-- More urgent rows than the floor's are looked for on their own.
WITH urgent AS MATERIALIZED (
    SELECT ctid
    FROM django_jobs_job
    WHERE state = 'ready' AND NOT blocked AND queue = (%(queue)s)::text
        AND priority < (%(floor_priority)s)::smallint
        AND {eligible}
        AND (not_before IS NULL OR not_before <= statement_timestamp())
    ORDER BY priority, run_at, id
    LIMIT (%(room)s)::int
    FOR UPDATE SKIP LOCKED
),
rest AS MATERIALIZED (
    SELECT ctid
    FROM django_jobs_job
    WHERE state = 'ready' AND NOT blocked AND queue = (%(queue)s)::text
        AND (priority, run_at) >= ((%(floor_priority)s)::smallint, (%(floor_run_at)s)::timestamptz)
        AND {eligible}
        AND (not_before IS NULL OR not_before <= statement_timestamp())
    ORDER BY priority, run_at, id
    LIMIT (%(room)s)::int - (SELECT count(*) FROM urgent)
    FOR UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE django_jobs_job
    SET state = 'running',
        attempt = attempt + 1,
        lease = (%(token)s)::uuid,
        lease_expires_at = statement_timestamp() + make_interval(secs => (%(lease)s)::float8),
        worker = (%(worker)s)::text,
        not_before = NULL,
        reason = '',
        started_at = COALESCE(started_at, statement_timestamp())
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM urgent UNION ALL SELECT ctid FROM rest))
    RETURNING
        id, run_id, name, queue, priority, run_at, tenant,
        CASE WHEN pg_column_size(payload) <= 32768 THEN payload::text END AS payload,
        attempt, max_attempts, crashes, timeout, traceparent, enqueued_by, lane, lane_token
)
SELECT
    id, run_id, name, queue, priority, run_at::text, tenant, payload,
    attempt, max_attempts, crashes, timeout, traceparent, enqueued_by, lane, lane_token
FROM claimed
ORDER BY claimed.priority, claimed.run_at, claimed.id
