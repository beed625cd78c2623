"""Dashboard: shows the work of the cache and the outcomes of lifetimes, and tunes lifetimes, tried before they are applied."""

from quaestor.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
