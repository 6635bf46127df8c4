-- Retire entries that a newer one of their lane has displaced. The caller holds their locks.
UPDATE django_jobs_outbox AS entry
SET outcome = 'displaced', job_id = called.job_id, published_at = statement_timestamp()
FROM {called}
WHERE entry.seq = called.seq AND (entry.outcome IS NULL OR entry.outcome = 'quarantined')
RETURNING entry.seq
