"""Supervision of background work: services are restarted when they raise, and every failure is counted, logged and shown."""
