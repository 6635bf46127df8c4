-- What the database's clock shows.
SELECT statement_timestamp()
