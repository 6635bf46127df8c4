-- Give each step that waits for one of these events the earliest of them: of its tenant, equal in
-- what it is matched by, not older than the job, and not taken by another wait of the run.
WITH found AS MATERIALIZED (
    SELECT step.run_id, step.name, min(event.seq) AS seq
    FROM django_jobs_event AS event
    CROSS JOIN LATERAL (
        -- Each by the index on (tenant, event, match): thousands may wait for one kind of event.
        SELECT one.run_id, one.name, one.job_id FROM django_jobs_step AS one
        WHERE one.status = 'waiting' AND one.tenant = event.tenant AND one.event = event.name
            AND one.match = event.match
        UNION ALL
        SELECT one.run_id, one.name, one.job_id FROM django_jobs_step AS one
        WHERE one.status = 'waiting' AND one.tenant = event.tenant AND one.event = event.name
            AND one.match IS NULL
    ) AS step
    JOIN django_jobs_job AS job ON job.id = step.job_id
    WHERE event.seq = ANY((%(seqs)s)::bigint[])
        AND event.expires_at > statement_timestamp()
        AND event.emitted_at >= job.created_at
        AND NOT EXISTS (
            SELECT FROM django_jobs_step AS earlier
            WHERE earlier.run_id = step.run_id AND earlier.event_seq = event.seq
        )
    GROUP BY step.run_id, step.name
),
held AS MATERIALIZED (
    SELECT step.run_id, step.name, event.seq, event.payload
    FROM found
    JOIN django_jobs_step AS step ON step.run_id = found.run_id AND step.name = found.name
    JOIN django_jobs_event AS event ON event.seq = found.seq
    WHERE step.status = 'waiting'
    ORDER BY step.run_id, step.name
    FOR NO KEY UPDATE OF step
)
UPDATE django_jobs_step AS step
SET status = 'answered', event_seq = held.seq, output = held.payload
FROM held
WHERE step.run_id = held.run_id AND step.name = held.name AND step.status = 'waiting'
RETURNING step.job_id
