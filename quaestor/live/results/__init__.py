"""Results of channels over HTTP: pages, long polls, streams of events, and WebSockets."""
