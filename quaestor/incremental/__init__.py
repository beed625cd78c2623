"""Incrementally maintained query results: the writes keep them up to date, step by step, without a new read."""

from quaestor.incremental.events import ResultEvent, replay
from quaestor.incremental.maintenance import PriorState
from quaestor.incremental.planning import plan_maintenance, unambiguous
from quaestor.incremental.renewal import RenewalRequest, RenewalSettings
from quaestor.incremental.result import MaintainedResult, bootstrap_queries, maintain

__all__ = [
    "MaintainedResult",
    "PriorState",
    "RenewalRequest",
    "RenewalSettings",
    "ResultEvent",
    "bootstrap_queries",
    "maintain",
    "plan_maintenance",
    "replay",
    "unambiguous",
]
