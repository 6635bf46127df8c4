-- The twin of displace.sql.
UPDATE django_jobs_outbox AS entry
SET outcome = 'displaced', job_id = called.job_id, published_at = {now}
FROM {called}
WHERE entry.seq = called.seq AND (entry.outcome IS NULL OR entry.outcome = 'quarantined')
RETURNING seq
