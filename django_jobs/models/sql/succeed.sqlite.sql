-- The twin of succeed.sql.
UPDATE django_jobs_job AS job
SET state = 'done',
    result = called.result,
    lease_expires_at = NULL,
    finished_at = {now}
FROM {called}
WHERE job.id = called.id AND job.lease = called.lease AND job.state = 'running'
RETURNING id
