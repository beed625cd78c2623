"""Live queries over plain HTTP: snapshots, chunks of numbered changes, long polls, streams of events (docs/live_http.md)."""
