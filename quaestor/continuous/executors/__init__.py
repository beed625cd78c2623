"""Executors of continuous queries: one Protocol, one implementation for each engine."""
