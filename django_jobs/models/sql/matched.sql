-- These events have been looked at. The caller holds their locks.
UPDATE django_jobs_event
SET matched_at = statement_timestamp()
WHERE seq = ANY((%(seqs)s)::bigint[])
RETURNING seq
