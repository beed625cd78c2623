"""Leases of many subscriptions that began together: extended in parts, and all in time."""

from __future__ import annotations

import pytest

from quaestor.event_layer import streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.model import GridShape, Operation, Query
from quaestor.observability.telemetry import Telemetry
from quaestor.realtime.codec import decode_query_event
from quaestor.realtime.local_subscriptions import LocalSubscriptions
from quaestor.realtime.messages import Subscription
from quaestor.realtime.results_loop import ResultsLoop
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings

pytestmark = pytest.mark.anyio

QUERIES = 1_000
ROUND_MS = 500
SHAPE = GridShape(query_partitions=1, write_partitions=1)


async def test_leases_that_are_due_together_are_extended_in_parts_and_in_time() -> None:
    """No round sends more than a fifth, and each lease is extended once, in time. Lost results are asked for at once."""
    now_ms, layer, settings = 1_000_000_000_000, MemoryEventLayer(), Settings()
    process = ProcessContext.of(settings, telemetry=Telemetry(), clock=lambda: now_ms)
    followed = LocalSubscriptions(layer, process, shape=lambda: SHAPE)
    loop = ResultsLoop(layer, process, followed)
    queries = {str(n): Query(namespace="shop.items", operation=Operation.FIND, filter={"k": n}) for n in range(QUERIES)}
    lives = [followed.join(query_id, query) for query_id, query in queries.items()]
    followed.ask(list(followed.by_query.values()))
    for local in followed.by_query.values():
        local.shared.needs_full_result = False
    stream = streams.queries(settings.deployment, 0, SHAPE.generation)
    seen = "0"

    def extended() -> list[str]:
        """The queries whose leases were extended since the last call."""
        nonlocal seen
        entries = layer.read({stream: seen}, count=2 * QUERIES, block_ms=0)
        seen = entries[-1].offset if entries else seen
        events = [decode_query_event(entry.payload) for entry in entries]
        return [event.query_id for event in events if isinstance(event, Subscription)]

    assert len(extended()) == QUERIES
    rounds: list[list[str]] = []
    now_ms += settings.realtime.subscription_extend_ms
    while sum(map(len, rounds)) < QUERIES and len(rounds) * ROUND_MS < settings.realtime.subscription_lease_ms:
        loop._housekeep()
        rounds.append(extended())
        now_ms += ROUND_MS
    assert max(map(len, rounds)) <= QUERIES // 5
    assert min(map(len, rounds)) > 0
    assert sorted(query_id for part in rounds for query_id in part) == sorted(queries)
    assert settings.realtime.subscription_extend_ms + len(rounds) * ROUND_MS < settings.realtime.subscription_lease_ms
    for local in followed.by_query.values():
        local.require_full_result()
    now_ms += settings.realtime.subscription_extend_ms
    loop._housekeep()
    assert len(extended()) == len(lives)
    layer.close()
