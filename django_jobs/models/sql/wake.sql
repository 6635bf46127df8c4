-- Make due rows ready, the most urgent first.
UPDATE django_jobs_job
SET state = 'ready'
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM django_jobs_job
    WHERE state IN ('delayed', 'suspended') AND run_at <= statement_timestamp()
    ORDER BY priority, run_at
    LIMIT (%(limit)s)::int
    FOR UPDATE SKIP LOCKED
))
RETURNING queue
