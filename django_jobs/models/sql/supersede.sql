-- Cancel every live job of these lanes that is older than the newest of the named jobs; each is
-- superseded by the next one after it. Rows are locked in id order, as by every statement that
-- changes several live rows. The worker stays on the row while its body runs.
-- Where a lane spares what runs, a running job goes on and carries what waits for it: it ends
-- superseded instead of running again.
WITH newest AS MATERIALIZED (
    SELECT job.name, job.tenant, job.lane, max(job.lane_token) AS token, bool_and(spare) AS spare
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
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
)
UPDATE django_jobs_job AS job
SET state = CASE WHEN older.spared THEN 'running' ELSE 'cancelled' END,
    superseded_by = older.usurper,
    lease = CASE WHEN older.spared THEN job.lease END,
    blocked = FALSE,
    reason = CASE WHEN older.spared THEN '' ELSE 'superseded' END,
    finished_at = CASE WHEN NOT older.spared THEN statement_timestamp() END
FROM older
WHERE job.id = older.id
    AND job.state IN ('ready', 'delayed', 'running', 'suspended')
RETURNING
    job.id, job.name, job.tenant, job.lane, job.superseded_by,
    job.lease_expires_at, job.state
