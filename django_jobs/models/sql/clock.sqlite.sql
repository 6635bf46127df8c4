-- The twin of clock.sql.
SELECT {now}
