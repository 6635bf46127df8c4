-- Is there an event to match, a step that waits for a job, an answer to wake somebody for?
-- Each question is the first row of its index, as in peek.sql.
SELECT
    (SELECT TRUE FROM django_jobs_event WHERE matched_at IS NULL ORDER BY seq LIMIT 1) IS NOT NULL,
    (
        SELECT TRUE FROM django_jobs_step
        WHERE status = 'waiting' AND child IS NOT NULL ORDER BY child LIMIT 1
    ) IS NOT NULL,
    (
        SELECT TRUE FROM django_jobs_step WHERE status = 'answered' ORDER BY job_id LIMIT 1
    ) IS NOT NULL
