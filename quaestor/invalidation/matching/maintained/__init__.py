"""Results that are kept up to date by the writes, step by step, instead of being read again."""

from quaestor.invalidation.matching.maintained.events import ResultEvent, replay
from quaestor.invalidation.matching.maintained.maintenance import Memory
from quaestor.invalidation.matching.maintained.planning import plan_maintenance, unambiguous
from quaestor.invalidation.matching.maintained.renewal import RenewalRequest, RenewalSettings
from quaestor.invalidation.matching.maintained.result import MaintainedResult, bootstrap_queries, maintain

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
