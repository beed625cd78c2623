"""Cached queries that are asked for more or less often, and which of them a full node gave up."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.invalidation.matching.node import Outcome
from quaestor.model import Invalidated, MatchType, Query, Usage
from quaestor.planning.plan import plan_query
from tests.unit.matching.scene import Scene, find

GRACE_MS = 10_000


def by(number: int) -> Query:
    return find({"customer": number})


def unlike(number: int) -> Query:
    """No index finds it."""
    return find({"a": {"$not": {"$elemMatch": {"$eq": number}}}})


def read(scene: Scene, query: Query, times: int) -> None:
    usage = Usage(tenant="t", queries=((plan_query(query).query_id, times),))
    scene.node.used(usage, now_ms=scene.now_ms)


def evicted(outcomes: Sequence[Outcome]) -> list[str]:
    """The ids of the queries that had to go."""
    return [
        outcome.query_id
        for outcome in outcomes
        if isinstance(outcome, Invalidated) and outcome.match_type is MatchType.EVICTED
    ]
