"""Runs of continuous queries: each closes an instant, executes the incremental query, and publishes new results once."""
