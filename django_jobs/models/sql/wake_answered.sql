-- Make suspended jobs ready whose waits are answered. A job that is about to suspend is found by
-- the next look: its answer stays.
UPDATE django_jobs_job
SET state = 'ready', run_at = LEAST(run_at, statement_timestamp())
WHERE ctid = ANY (ARRAY(
    -- The state said so that no partial index fits: the planner would walk all that sleep.
    SELECT ctid
    FROM django_jobs_job
    WHERE COALESCE(state, '') = 'suspended'
        AND id = ANY (ARRAY(SELECT job_id FROM django_jobs_step WHERE status = 'answered'))
    ORDER BY priority, run_at
    LIMIT (%(limit)s)::int
    FOR UPDATE SKIP LOCKED
))
RETURNING queue, id
