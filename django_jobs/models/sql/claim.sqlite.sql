-- The twin of claim.sql. One writer at a time is SQLite's rule, so nothing is passed over.
-- `blocked` is asked for twice: SQLite takes a partial index only for a statement that repeats its
-- condition, which Django 5.2 writes as NOT blocked and Django 6 as blocked = 0.
UPDATE django_jobs_job
SET state = 'running',
    attempt = attempt + 1,
    lease = %(token)s,
    lease_expires_at = {now + lease},
    worker = %(worker)s,
    not_before = NULL,
    reason = '',
    started_at = COALESCE(started_at, {now})
WHERE id IN (
    SELECT id
    FROM django_jobs_job
    WHERE state = 'ready' AND NOT blocked AND blocked = 0 AND queue = %(queue)s
        AND (priority < %(floor_priority)s
            OR (priority, run_at) >= (%(floor_priority)s, %(floor_run_at)s))
        AND {eligible}
        AND (not_before IS NULL OR not_before <= {now})
    ORDER BY priority, run_at, id
    LIMIT %(room)s
)
RETURNING
    id, run_id, name, queue, priority, run_at, tenant,
    CASE WHEN length(payload) <= 32768 THEN payload END,
    attempt, max_attempts, crashes, timeout, traceparent, enqueued_by, lane, lane_token
