-- The twin of draw_tokens.sql: the write lock, and the last of the tokens drawn.
INSERT INTO django_jobs_counter (name, value) VALUES ('lane', %(draws)s)
ON CONFLICT (name) DO UPDATE SET value = value + %(draws)s
RETURNING value
