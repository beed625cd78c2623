"""WebSocket endpoint: many subscriptions to queries on one socket (docs/live_queries.md)."""
