"""Rewriting rules of continuous queries: monotone and incremental queries. Pure functions without I/O."""
