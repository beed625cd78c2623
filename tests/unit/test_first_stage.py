"""First stage of a query partition: it starts at the first subscription of a process, and has admitted nothing before."""

from __future__ import annotations

import pytest

from quaestor.clock import system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.model import GridShape, Operation, Query
from quaestor.observability.telemetry import Telemetry
from quaestor.planning.plan_cache import plan_of
from quaestor.realtime.codec import encode_query_event
from quaestor.realtime.messages import Subscription
from quaestor.realtime.reader_pool import ReaderPool
from quaestor.realtime.rules import StageRules
from quaestor.realtime.stage import StageLoop

SHAPE = GridShape(query_partitions=1, write_partitions=1)


def subscription(number: int) -> bytes:
    query = Query(namespace="db.items", operation=Operation.FIND, filter={"n": number})
    return encode_query_event(
        Subscription(
            id=f"app:{number}", tenant="greedy", query_id=plan_of(query, keep=False).query_id, query=query, fresh=True,
            expires_at_ms=system_clock() + 60_000,
        )
    )  # fmt: skip


def admitted(layer: MemoryEventLayer) -> int:
    """The queries that a new stage holds after it has read the pipeline."""
    later = 10  # so that the epoch is later than the entries
    context = LoopContext(deployment="d", heartbeat_ms=10, telemetry=Telemetry(), clock=lambda: system_clock() + later)
    readers = ReaderPool(lambda *_: None, 1)  # type: ignore[arg-type]
    stage = StageLoop(
        layer, lambda *_: None, 0, SHAPE, context, rules=StageRules(max_queries=100), readers=readers  # type: ignore[arg-type]
    )  # fmt: skip
    stage.step(wait_ms=0)
    readers.close()
    return stage.queries


@pytest.mark.parametrize("earlier_stages", [0, 1])
def test_quotas_hold_for_subscriptions_that_are_older_than_the_first_stage(earlier_stages: int) -> None:
    """A tenant gets its part and no more; a stage that replaces another one takes over what that one may have admitted."""
    layer = MemoryEventLayer()
    for _ in range(earlier_stages):
        assert admitted(layer) == 0
    layer.append(streams.queries("d", 0), [subscription(number) for number in range(100)])
    assert admitted(layer) == (100 if earlier_stages else 81)
