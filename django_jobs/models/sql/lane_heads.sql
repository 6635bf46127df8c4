-- Note what was published last in these lanes, and how many runs in a row were superseded: the
-- count begins anew once a job of the lane has ended done.
INSERT INTO django_jobs_lane AS head (name, tenant, lane, last_token, last_job, supersessions)
SELECT name, tenant, lane, token, id, ended
FROM {called}
WHERE TRUE
ORDER BY name, tenant, lane
ON CONFLICT (name, tenant, lane) DO UPDATE
SET last_token = excluded.last_token,
    last_job = excluded.last_job,
    supersessions = excluded.supersessions + CASE
        WHEN EXISTS (
            SELECT 1 FROM django_jobs_job AS job WHERE job.id = head.last_job AND job.state = 'done'
        ) THEN 0
        ELSE head.supersessions
    END
WHERE head.last_token < excluded.last_token
RETURNING name, supersessions
