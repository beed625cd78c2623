"""Client of live queries: results and events of queries, over one WebSocket (docs/live_queries.md)."""
