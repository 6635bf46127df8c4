-- Retire claimed entries that became the jobs whose ids they carry. The caller holds their locks.
-- No outcome yet, said so that no partial index fits: with statistics from a time when nothing was
-- staged, the planner would walk all that is pending for each batch.
UPDATE django_jobs_outbox
SET outcome = 'published', job_id = id, published_at = statement_timestamp()
WHERE seq = ANY((%(seqs)s)::bigint[]) AND claimed_by = (%(token)s)::uuid
    AND COALESCE(outcome, '') = ''
RETURNING seq
