-- The twin of supersede.sql.
WITH newest AS MATERIALIZED (
    SELECT job.name, job.tenant, job.lane, max(job.lane_token) AS token, min(spare) AS spare
    FROM {called}
    JOIN django_jobs_job AS job ON job.id = called.id
    GROUP BY job.name, job.tenant, job.lane
),
older AS MATERIALIZED (
    SELECT
        job.id,
        newest.spare AND job.state = 'running' AS spared,
        (
            SELECT newer.id
            FROM django_jobs_job AS newer
            WHERE newer.name = job.name AND newer.tenant = job.tenant AND newer.lane = job.lane
                AND newer.lane_token > job.lane_token
                AND newer.state IN ('ready', 'delayed', 'running', 'suspended')
            ORDER BY newer.lane_token
            LIMIT 1
        ) AS usurper
    FROM newest
    JOIN django_jobs_job AS job
        ON job.name = newest.name AND job.tenant = newest.tenant AND job.lane = newest.lane
    WHERE job.state IN ('ready', 'delayed', 'running', 'suspended')
        AND job.lane_token < newest.token
)
UPDATE django_jobs_job AS job
SET state = CASE WHEN older.spared THEN 'running' ELSE 'cancelled' END,
    superseded_by = older.usurper,
    lease = CASE WHEN older.spared THEN job.lease END,
    blocked = FALSE,
    reason = CASE WHEN older.spared THEN '' ELSE 'superseded' END,
    finished_at = CASE WHEN NOT older.spared THEN {now} END
FROM older
WHERE job.id = older.id
RETURNING id, name, tenant, lane, superseded_by, lease_expires_at, state
