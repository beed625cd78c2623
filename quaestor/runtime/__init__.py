"""Runtime of a Quaestor: its parts, and the background work beside the requests."""
