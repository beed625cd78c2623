"""The command line: `quaestor ...`."""
