-- Which unpublished entry has the key of each of these.
SELECT called.id, entry.id
FROM {called}
JOIN django_jobs_outbox AS entry
    ON entry.name = called.name
    AND entry.tenant = called.tenant
    AND entry.idempotency_key = called.idempotency_key
    AND entry.outcome IS NULL
