-- The twin of free_lane_keys.sql.
UPDATE django_jobs_job AS job
SET state = 'cancelled',
    superseded_by = called.id,
    lease = NULL,
    blocked = FALSE,
    reason = 'superseded',
    finished_at = {now}
FROM {called}
WHERE job.name = called.name
    AND job.tenant = called.tenant
    AND job.idempotency_key = called.idempotency_key
    AND job.state IN ('ready', 'delayed', 'running', 'suspended')
    AND job.lane = called.lane AND job.id <> called.id
    AND NOT (job.lease IS NULL AND job.attempt = 0 AND job.started_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM django_jobs_job AS same WHERE same.id = called.id)
RETURNING id, name, tenant, lane, superseded_by, lease_expires_at, state
