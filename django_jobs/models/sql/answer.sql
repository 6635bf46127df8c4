-- Give each step that waits for one of these events the earliest of them: of its tenant, equal in
-- what it is matched by, not older than the job, and not taken by another wait of the run.
-- OFFSET 0, sub-selects and ctids keep each look a look into an index: as joins, the planner takes
-- them for large, and reads every step.
WITH fresh AS MATERIALIZED (
    SELECT seq, tenant, name, match, emitted_at
    FROM django_jobs_event
    WHERE seq = ANY((%(seqs)s)::bigint[]) AND expires_at > statement_timestamp()
),
found AS MATERIALIZED (
    SELECT step.tid, min(fresh.seq) AS seq
    FROM fresh
    CROSS JOIN LATERAL (
        SELECT ctid AS tid, run_id, job_id FROM django_jobs_step AS one
        WHERE one.status = 'waiting' AND one.tenant = fresh.tenant AND one.event = fresh.name
            AND one.match = fresh.match
        UNION ALL
        SELECT ctid, run_id, job_id FROM django_jobs_step AS one
        WHERE one.status = 'waiting' AND one.tenant = fresh.tenant AND one.event = fresh.name
            AND one.match IS NULL
        OFFSET 0
    ) AS step
    WHERE fresh.emitted_at >= (SELECT created_at FROM django_jobs_job WHERE id = step.job_id)
        AND (
            SELECT TRUE FROM django_jobs_step AS earlier
            WHERE earlier.run_id = step.run_id AND earlier.event_seq = fresh.seq
            LIMIT 1
        ) IS NULL
    GROUP BY step.tid
),
held AS MATERIALIZED (
    SELECT ctid AS tid
    FROM django_jobs_step
    WHERE ctid = ANY (ARRAY(SELECT tid FROM found)) AND COALESCE(status, '') = 'waiting'
    ORDER BY run_id, name
    FOR NO KEY UPDATE
)
UPDATE django_jobs_step AS step
SET status = 'answered',
    event_seq = found.seq,
    output = (SELECT payload FROM django_jobs_event AS event WHERE event.seq = found.seq)
FROM found
WHERE step.ctid = ANY (ARRAY(SELECT tid FROM held)) AND step.ctid = found.tid
RETURNING step.job_id
