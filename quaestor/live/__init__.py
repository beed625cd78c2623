"""Live answers and queries on the web: what changes is sent to clients as it changes."""
