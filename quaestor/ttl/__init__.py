"""Lifetimes: how often records are written, and how long a query result will probably live. Pure arithmetic."""

from quaestor.ttl.estimator import TtlEstimator

__all__ = ["TtlEstimator"]
