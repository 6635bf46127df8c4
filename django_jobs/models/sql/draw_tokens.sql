-- Lock the stripes in ascending order, then draw tokens: counting the locks is what makes the
-- draws wait for the last of them. A statement of its own, so that every later one of the
-- transaction sees what the holders before it committed.
WITH patience AS MATERIALIZED (
    SELECT set_config(
        'lock_timeout', COALESCE((%(limit)s)::text, current_setting('lock_timeout')), TRUE
    )
),
locked AS MATERIALIZED (
    SELECT pg_advisory_xact_lock((%(class)s)::int, stripe)
    FROM patience
    CROSS JOIN unnest((%(stripes)s)::int[]) WITH ORDINALITY AS wanted (stripe, position)
    ORDER BY position
)
SELECT nextval('django_jobs_lane_token')
FROM (SELECT count(*) FROM locked) AS counted
CROSS JOIN generate_series(1, (%(draws)s)::int)
