"""The election, step by step: two processes' parts in it, on a real Valkey and a real mongod."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import pytest

from quaestor.clock import system_clock
from quaestor.errors import EventLayerError
from quaestor.event_layer import streams
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.fenced import FencedLayer, fenced
from quaestor.invalidation.grid.election import Election, MatchedBy, Matching, matching
from quaestor.invalidation.grid.embedded import EmbeddedGrid
from quaestor.invalidation.grid.resizing.state import enter, get_state
from quaestor.model import GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import ReadingAppends
from quaestor.settings import Settings
from tests.support import PATIENCE_S

BOUND_MS = 60_000
"""A lease of a third of this: longer than a busy machine stands still."""
SHORT_LEASE_MS = 500


class Process:
    """One process's part. Its fenced event layers are kept: what they refuse is looked at."""

    def __init__(self, redis_url: str, mongo_url: str, deployment: str) -> None:
        settings = Settings(deployment=deployment, heartbeat_ms=20, staleness_bound_ms=BOUND_MS)
        self.telemetry = Telemetry()
        self.layers: list[FencedLayer] = []
        layer = partial(event_layer, redis_url, deployment)

        def grid(held: Callable[[], bool]) -> EmbeddedGrid:
            def each_layer() -> FencedLayer:
                self.layers.append(fenced(layer(), held))
                return self.layers[-1]

            return EmbeddedGrid(mongo_url, each_layer=each_layer, settings=settings, telemetry=self.telemetry)

        self.election = Election(
            layer(),
            grid,
            deployment=deployment,
            staleness_bound_ms=BOUND_MS,
            telemetry=self.telemetry,
            clock=system_clock,
        )

    def close(self) -> None:
        self.election.start()
        self.election.stop()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline


def test_one_leads_and_the_other_takes_over_when_it_stands_still(
    mongo_url: str, shared_url: str, prefix: str, stack: ExitStack
) -> None:
    old, new = (Process(shared_url, mongo_url, prefix) for _ in range(2))
    for process in (old, new):
        stack.callback(process.close)
    layer = stack.enter_context(closing(event_layer(shared_url, prefix)))
    old.election.step()
    assert old.election.leads
    new.election.step()
    assert not new.election.leads
    assert matching(layer, prefix).by is MatchedBy.ELECTED
    until(lambda: len(old.layers) == 3)  # ingest, the cell and the stage have begun
    checkpoint = streams.checkpoint(prefix, GridShape(query_partitions=1, write_partitions=1).cells[0])

    def fresh() -> bool:
        old.election.step()
        return layer.get(checkpoint) is not None

    until(fresh)

    # The leader stands still from here on, without prolonging its lease. The last lease is short to keep the test short.
    old.election._lease_ms = SHORT_LEASE_MS
    old.election.step()

    def taken_over() -> bool:
        new.election.step()
        return new.election.leads

    until(taken_over)
    assert old.election.leads, "it does not know yet"
    before = layer.get(streams.resume_position(prefix))
    for refusing in old.layers:
        with pytest.raises(EventLayerError, match="lease"):
            refusing.append(streams.writes(prefix, 0), [b"late"])
        if isinstance(refusing, ReadingAppends):  # one server
            with pytest.raises(EventLayerError, match="lease"):
                refusing.append_and_get(streams.writes(prefix, 0), [b"late"], streams.awaited(prefix))
        with pytest.raises(EventLayerError, match="lease"):
            refusing.put(streams.resume_position(prefix), b"late")
        with pytest.raises(EventLayerError, match="lease"):
            refusing.trim(streams.writes(prefix, 0), before_ms=0)
    assert before is not None
    assert layer.get(streams.resume_position(prefix)) != b"late"
    old.election.step()
    assert not old.election.leads
    assert new.election.leads


def test_a_process_whose_database_cannot_be_followed_leaves_it_to_others(
    mongo_url: str, redis_url: str, prefix: str, stack: ExitStack
) -> None:
    unable = Process(redis_url, "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1", prefix)
    able = Process(redis_url, mongo_url, prefix)
    for process in (unable, able):
        stack.callback(process.close)
    unable.election.step()
    able.election.step()
    assert not unable.election.leads
    assert able.election.leads
    failures = unable.telemetry.families.registry.get_sample_value("quaestor_failures_total", {"part": "grid"})
    assert failures == 1


def test_a_grid_of_its_own_ends_the_elected_one(mongo_url: str, redis_url: str, prefix: str, stack: ExitStack) -> None:
    process = Process(redis_url, mongo_url, prefix)
    stack.callback(process.close)
    layer = stack.enter_context(closing(event_layer(redis_url, prefix)))
    assert matching(layer, prefix) == Matching(MatchedBy.NOBODY)
    process.election.step()
    assert process.election.leads
    enter(layer, prefix, "grid", GridShape(query_partitions=1, write_partitions=1))
    process.election.step()
    assert not process.election.leads
    process.election.step()
    assert not process.election.leads
    assert matching(layer, prefix) == Matching(MatchedBy.GRID)
    state = get_state(layer, prefix)
    assert state is not None
    assert state.concerns("grid")
