"""Incrementally maintained query results: the writes keep them up to date, step by step, without a new read.

Queries that cannot be maintained are recomputed: their results are read again after writes.
"""

from quaestor.incremental.events import ResultEvent, replay
from quaestor.incremental.maintenance import PriorState
from quaestor.incremental.planning import plan_maintenance, unambiguous
from quaestor.incremental.recomputation import plan_following
from quaestor.incremental.recomputed_result import FollowedResult, RecomputedResult, changes_between
from quaestor.incremental.renewal import RenewalRequest, RenewalSettings
from quaestor.incremental.result import MaintainedResult, bootstrap_queries, maintain

__all__ = [
    "FollowedResult",
    "MaintainedResult",
    "PriorState",
    "RecomputedResult",
    "RenewalRequest",
    "RenewalSettings",
    "ResultEvent",
    "bootstrap_queries",
    "changes_between",
    "maintain",
    "plan_following",
    "plan_maintenance",
    "replay",
    "unambiguous",
]
