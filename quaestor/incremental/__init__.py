"""Results that are kept up to date by the writes, step by step, instead of being read again."""

from quaestor.incremental.events import ResultEvent, replay
from quaestor.incremental.maintenance import Memory
from quaestor.incremental.planning import plan_maintenance, unambiguous
from quaestor.incremental.renewal import RenewalRequest, RenewalSettings
from quaestor.incremental.result import MaintainedResult, bootstrap_queries, maintain

__all__ = [
    "MaintainedResult",
    "Memory",
    "RenewalRequest",
    "RenewalSettings",
    "ResultEvent",
    "bootstrap_queries",
    "maintain",
    "plan_maintenance",
    "replay",
    "unambiguous",
]
