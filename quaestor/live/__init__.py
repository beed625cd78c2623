"""Live answers and queries on the web: clients receive a result, and then each change of it."""
