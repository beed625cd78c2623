"""Metrics, log events and traces: one name for every failure."""
