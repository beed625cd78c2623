"""Dashboard: what the cache does, lifetimes beside what came of them, and their tuning, tried before it is applied."""

from quaestor.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
