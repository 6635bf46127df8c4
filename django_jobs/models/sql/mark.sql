-- Retire claimed entries that became the jobs whose ids they carry. The caller holds their locks.
UPDATE django_jobs_outbox
SET outcome = 'published', job_id = id, published_at = statement_timestamp()
WHERE seq = ANY((%(seqs)s)::bigint[]) AND claimed_by = (%(token)s)::uuid AND outcome IS NULL
RETURNING seq
