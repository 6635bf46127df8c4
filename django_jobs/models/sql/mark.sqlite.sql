-- The twin of mark.sql.
UPDATE django_jobs_outbox
SET outcome = 'published', job_id = id, published_at = {now}
WHERE seq IN (SELECT value FROM json_each(%(seqs)s)) AND claimed_by = %(token)s
    AND outcome IS NULL
RETURNING seq
