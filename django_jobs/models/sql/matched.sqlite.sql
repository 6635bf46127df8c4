-- The twin of matched.sql.
UPDATE django_jobs_event
SET matched_at = {now}
WHERE seq IN (SELECT value FROM json_each(%(seqs)s))
RETURNING seq
