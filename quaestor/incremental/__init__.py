"""Incrementally maintained query results: the writes keep them up to date, step by step, without a new read.

Queries that cannot be maintained are recomputed: their results are read again after writes.

A name loads its module at first use: an application without subscribed queries needs the events alone (docs/adr/0023).
"""

from typing import TYPE_CHECKING

from quaestor.first_use import names_at_first_use

if TYPE_CHECKING:
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

__getattr__ = names_at_first_use(
    globals(),
    {
        "quaestor.incremental.events": "ResultEvent replay",
        "quaestor.incremental.maintenance": "PriorState",
        "quaestor.incremental.planning": "plan_maintenance unambiguous",
        "quaestor.incremental.recomputation": "plan_following",
        "quaestor.incremental.recomputed_result": "FollowedResult RecomputedResult changes_between",
        "quaestor.incremental.renewal": "RenewalRequest RenewalSettings",
        "quaestor.incremental.result": "MaintainedResult bootstrap_queries maintain",
    },
)
