-- Which job stands for each entry: its own row, else the live job that holds its key. In its own
-- lane that is only one that was never claimed: what another one read may be older.
SELECT called.id, job.id, TRUE AS own
FROM {called}
JOIN django_jobs_job AS job ON job.id = called.id
UNION ALL
SELECT called.id, job.id, FALSE
FROM {called}
JOIN django_jobs_job AS job
    ON job.name = called.name
    AND job.tenant = called.tenant
    AND job.idempotency_key = called.idempotency_key
    AND job.state IN ('ready', 'delayed', 'running', 'suspended')
WHERE job.id <> called.id
    AND NOT (
        (job.lane = called.lane) IS TRUE
        AND NOT (job.lease IS NULL AND job.attempt = 0 AND job.started_at IS NULL)
    )
