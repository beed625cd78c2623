"""Pages of results on the web: a log of immutable pages behind a pointer, read or followed by clients."""
