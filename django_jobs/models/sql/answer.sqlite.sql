-- The twin of answer.sql.
UPDATE django_jobs_step
SET status = 'answered', event_seq = found.seq, output = found.payload
FROM (
    SELECT step.run_id, step.name, min(event.seq) AS seq, event.payload
    FROM django_jobs_event AS event
    JOIN django_jobs_step AS step
        ON step.tenant = event.tenant AND step.event = event.name AND step.status = 'waiting'
    JOIN django_jobs_job AS job ON job.id = step.job_id
    WHERE event.seq IN (SELECT value FROM json_each(%(seqs)s))
        AND event.expires_at > {now}
        AND event.emitted_at >= job.created_at
        AND (step.match IS NULL OR step.match = event.match)
        AND NOT EXISTS (
            SELECT 1 FROM django_jobs_step AS earlier
            WHERE earlier.run_id = step.run_id AND earlier.event_seq = event.seq
        )
    GROUP BY step.run_id, step.name
) AS found
WHERE django_jobs_step.run_id = found.run_id AND django_jobs_step.name = found.name
    AND status = 'waiting'
RETURNING job_id
