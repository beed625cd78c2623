"""Query plans: how a query is matched, by which index it is found, and which fields of a record matter."""
