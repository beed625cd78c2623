"""What decides an answer beside the queries: the clock, and which records the database chose among those that match."""
