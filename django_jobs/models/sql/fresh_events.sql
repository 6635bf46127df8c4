-- Events that nobody has looked at, locked, in their order. A second matcher waits here for the
-- first, so that an earlier event is never taken for a later one.
SELECT seq
FROM django_jobs_event
WHERE matched_at IS NULL
ORDER BY seq
LIMIT (%(limit)s)::int
FOR UPDATE
