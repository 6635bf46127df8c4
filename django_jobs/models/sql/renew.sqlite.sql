-- The twin of renew.sql.
UPDATE django_jobs_job AS job
SET lease_expires_at = {now + lease}
FROM {called}
WHERE job.id = called.id AND job.lease = called.lease AND job.state = 'running'
RETURNING id
