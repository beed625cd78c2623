"""Hypothesis judges a property by what it finds, not by how long this machine takes to draw examples and to run them.

Its defaults fail an example that takes 200 ms, and a test whose first examples take a second to draw: each is what a machine does
that stands still for a moment. For the conftest of every folder with properties.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("unhurried")
