-- The twin of fresh_events.sql.
SELECT seq FROM django_jobs_event WHERE matched_at IS NULL ORDER BY seq LIMIT %(limit)s
