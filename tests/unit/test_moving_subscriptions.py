"""Subscriptions that move to another stage because the grid was partitioned anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quaestor.event_layer import streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.model import GridShape, Operation, Query, Version
from quaestor.observability.telemetry import Telemetry
from quaestor.planning.plan import plan_query
from quaestor.realtime.codec import decode_query_event, encode_result
from quaestor.realtime.live import LiveResult
from quaestor.realtime.messages import FullResult, ResultMessage, StageProgress, Subscription
from quaestor.realtime.subscriptions import Subscriptions
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.support import eventually

pytestmark = pytest.mark.anyio

OLD = GridShape(query_partitions=1, write_partitions=1, generation=1)
NEW = GridShape(query_partitions=1, write_partitions=2, generation=2)
QUERY = Query(namespace="shop.items", operation=Operation.FIND, filter={"kind": "a"})
QUERY_ID = plan_query(QUERY).query_id


class Stages:
    """The stages of two generations, as a test has them speak; `shape` is the grid that the process knows of."""

    def __init__(self) -> None:
        self.layer = MemoryEventLayer()
        self.settings = Settings()
        self.telemetry = Telemetry()
        self.shape: GridShape = OLD
        self.subscriptions = self.made(lambda: self.shape)

    def made(self, shape: Any) -> Subscriptions:
        return Subscriptions(self.layer, ProcessContext.of(self.settings, telemetry=self.telemetry), shape=shape)

    def asked(self, shape: GridShape) -> list[Subscription]:
        """Return the subscriptions that the stage of this generation has received."""
        stream = streams.queries(self.settings.deployment, 0, shape.generation)
        entries = self.layer.read({stream: "0"}, count=100, block_ms=0)
        events = [decode_query_event(entry.payload) for entry in entries]
        return [event for event in events if isinstance(event, Subscription)]

    def say(self, shape: GridShape, *messages: ResultMessage) -> None:
        stream = streams.results(self.settings.deployment, 0, shape.generation)
        self.layer.append(stream, [encode_result(message) for message in messages])

    def progress(self, shape: GridShape, version: Version) -> StageProgress:
        return StageProgress(stage=self.stage(shape), version=version, fresh_as_of_ms=version, behind=())

    def full(self, shape: GridShape, version: Version, *keys: int) -> FullResult:
        return FullResult(
            query_id=QUERY_ID, subscription_ids=(self.asked(shape)[-1].id,), epoch=f"{self.stage(shape)}.1", sequence=version,
            version=version, ordered=False, rows=tuple((key, {"_id": key}) for key in keys), lacking=(),
        )  # fmt: skip

    @staticmethod
    def stage(shape: GridShape) -> str:
        return f"s{shape.generation}"


@pytest.fixture
async def stages() -> AsyncIterator[Stages]:
    stages = Stages()
    yield stages
    await asyncio.to_thread(stages.subscriptions.stop)
    stages.layer.close()


async def followed(stages: Stages) -> LiveResult:
    """A result of the old stage: the records 1 and 2, as of version 100."""
    subscribing = asyncio.create_task(stages.subscriptions.subscribe(QUERY))
    await eventually(lambda: bool(stages.asked(OLD)))
    stages.say(OLD, stages.progress(OLD, 100), stages.full(OLD, 100, 1, 2))
    live = await subscribing
    assert live.version == 100
    return live


def keys(live: LiveResult) -> list[Any]:
    return sorted(key for key, _ in live.rows())


async def test_a_subscription_that_is_placed_while_the_grid_changes_is_on_the_new_stage(stages: Stages) -> None:
    """The new shape is followed between the look at the old one and the subscription."""
    looks = 0

    def shape() -> GridShape:
        nonlocal looks
        looks += 1
        if looks == 1:
            subscriptions._loop.follow_shape(stages.subscriptions._process.clock())  # the reading thread is quicker
            return OLD
        return NEW

    subscriptions = stages.made(shape)
    subscribing = asyncio.create_task(subscriptions.subscribe(QUERY))
    await eventually(lambda: bool(stages.asked(NEW)))
    stages.say(NEW, stages.progress(NEW, 100), stages.full(NEW, 100, 1, 2))
    live = await subscribing
    assert keys(live) == [1, 2]
    await live.cancel()
    await asyncio.to_thread(subscriptions.stop)


async def test_the_older_result_of_a_stage_that_lags_is_not_taken_over(stages: Stages) -> None:
    """Its version would claim writes that its rows do not contain; it is taken over once the stage has caught up."""
    live = await followed(stages)
    stages.shape = NEW
    await eventually(lambda: bool(stages.asked(NEW)))
    stages.say(NEW, stages.progress(NEW, 89), stages.full(NEW, 89, 1), stages.progress(NEW, 90))
    await eventually(lambda: live._shared.reported.version == 90)
    assert (live.version, keys(live)) == (100, [1, 2])
    before = len(stages.asked(NEW))
    await eventually(lambda: len(stages.asked(NEW)) > before)  # it is asked for again
    stages.say(NEW, stages.progress(NEW, 110), stages.full(NEW, 89, 1, 2, 3))
    await eventually(lambda: keys(live) == [1, 2, 3])
    assert live.version == 110
    await live.cancel()


async def test_a_stage_that_never_catches_up_is_believed_with_its_own_version(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writes are lost: the version goes back with the rows."""
    monkeypatch.setattr("quaestor.realtime.live._CATCH_UP_MS", 0)
    live = await followed(stages)
    stages.shape = NEW
    await eventually(lambda: bool(stages.asked(NEW)))
    stages.say(NEW, stages.progress(NEW, 90), stages.full(NEW, 90, 1))
    await eventually(lambda: keys(live) == [1])
    assert live.version == 90
    await live.cancel()
