"""Command line of Quaestor: `quaestor ...`."""
