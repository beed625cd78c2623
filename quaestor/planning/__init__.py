"""Query plans: how a query is matched, by which index, and which fields of a record matter to it."""
