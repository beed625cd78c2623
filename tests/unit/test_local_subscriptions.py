"""Subscriptions of a process: their subscribers, the messages to their stages, and the pipelines that the process reads."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from quaestor.event_layer import streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.model import GridShape, Operation, Query
from quaestor.observability.telemetry import Telemetry
from quaestor.realtime.codec import decode_query_event
from quaestor.realtime.live import LiveResult, SubscriberOptions
from quaestor.realtime.local_subscription import LocalSubscription
from quaestor.realtime.local_subscriptions import LocalSubscriptions
from quaestor.realtime.messages import Subscription, Unsubscription
from quaestor.realtime.results_loop import ResultsLoop
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings

pytestmark = pytest.mark.anyio


@dataclass
class Process:
    """One process with subscriptions, driven by hand.

    parts: query partitions of the grid.
    """

    parts: int = 1
    now_ms: int = 1_000_000_000_000
    layer: MemoryEventLayer = field(default_factory=MemoryEventLayer)

    def __post_init__(self) -> None:
        settings, self.telemetry = Settings(), Telemetry()
        context = ProcessContext.of(settings, telemetry=self.telemetry, clock=lambda: self.now_ms)
        self.followed = LocalSubscriptions(self.layer, context, shape=lambda: self.shape)
        self.loop = ResultsLoop(self.layer, context, self.followed)
        self.deployment, self.extend_ms = settings.deployment, settings.realtime.subscription_extend_ms

    @property
    def shape(self) -> GridShape:
        """The present shape of the grid."""
        return GridShape(query_partitions=self.parts, write_partitions=1, generation=self.parts - 1)

    def follow(self, name: str, *, poll_interval_ms: int = 1_000) -> LiveResult:
        """Subscribe to a query, named by itself, and send its message."""
        query = Query(namespace="shop.items", operation=Operation.FIND, filter={"name": name})
        live = self.followed.join(name, query, SubscriberOptions(poll_interval_ms=poll_interval_ms))
        self.followed.open(name)
        return live

    def round(self, *, after_ms: int = 500) -> None:
        """Let time pass, and keep house."""
        self.now_ms += after_ms
        self.loop._housekeep()

    def sent(self) -> list[tuple[str, str]]:
        """The kinds and queries of all messages to stages so far, those of one stage in order."""
        events = []
        for generation in range(3):
            for part in range(self.parts):
                stream = streams.queries(self.deployment, part, generation)
                for entry in self.layer.read({stream: "0"}, count=1_000, block_ms=0):
                    event = decode_query_event(entry.payload)
                    assert isinstance(event, Subscription | Unsubscription)
                    events.append((type(event).__name__, event.query_id))
        return events

    def subscribers(self) -> float:
        """The number of subscribers, as the metric says."""
        value: float = self.telemetry.subscriptions.subscribers._value.get()
        return value


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.layer.close()


async def test_a_collected_subscriber_has_left(process: Process) -> None:
    """The stage receives the end of the last one, within a round; the others go on."""
    kept, dropped, alone = process.follow("shared"), process.follow("shared"), process.follow("alone")
    process.round()
    assert process.subscribers() == 3
    del dropped, alone
    gc.collect()
    process.round()
    assert process.subscribers() == 1
    assert process.followed.by_query.keys() == {"shared"}
    assert [sent for sent in process.sent() if sent[0] == "Unsubscription"] == [("Unsubscription", "alone")]
    assert process.followed.left(kept, kept._shared) is not None
    process.round()
    assert process.subscribers() == 0


async def test_a_query_that_is_followed_again_is_not_ended_for_its_former_subscriber(process: Process) -> None:
    """The former one is collected late, when its query has a new subscription already."""
    former = process.follow("late")
    process.followed.left(former, former._shared)
    again = process.follow("late")
    del former
    gc.collect()
    process.round()
    assert process.subscribers() == 1
    assert "late" in process.followed.by_query
    assert not again.ended


async def test_a_smaller_poll_interval_is_sent_at_once(process: Process) -> None:
    """A subscription that has its result is otherwise quiet until its lease is extended."""
    first = process.follow("polled")
    process.followed.by_query["polled"].shared.needs_full_result = False
    process.round()
    assert len(process.sent()) == 1
    second = process.followed.join("polled", first.query, SubscriberOptions(poll_interval_ms=10))
    process.round()
    assert process.sent() == [("Subscription", "polled")] * 2
    for _ in range(process.extend_ms // 500 + 1):
        process.round()
    assert process.sent() == [("Subscription", "polled")] * 3
    assert second.options.poll_interval_ms == 10


async def test_a_result_that_does_not_come_is_asked_for_each_second(process: Process) -> None:
    """Until then it is not extended in parts, as other leases are."""
    live = process.follow("missing")
    for _ in range(4):
        process.round(after_ms=1_000)
    assert process.sent() == [("Subscription", "missing")] * 5
    assert not live.known


async def test_pipelines_are_forgotten_with_their_last_subscription(process: Process) -> None:
    """Also those of stages that another shape of the grid has replaced."""
    lives = [process.follow(name) for name in ("a", "b", "c", "d")]
    process.round()
    (before,) = process.followed.reader.positions
    process.parts = 2
    process.round()
    process.round()
    after = set(process.followed.reader.positions)
    assert before not in after
    assert after == {process.followed.results_of(local.stage) for local in process.followed.by_query.values()}
    for live in lives:
        process.followed.left(live, live._shared)
    process.round()
    assert not process.followed.reader.positions


async def test_leases_that_have_to_wait_cost_a_round_nothing(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round looks only at the leases that it extends, however many are overdue."""
    lives = [process.follow(f"q{n}") for n in range(200)]
    for local in process.followed.by_query.values():
        local.shared.needs_full_result = False
    process.now_ms += 1_000
    assert not process.followed.due(process.now_ms, most=1)
    process.now_ms += 2 * process.extend_ms
    looked, is_due = [], LocalSubscription.is_due

    def counted(local: LocalSubscription, now_ms: int, *, extend_ms: int, request: bool) -> bool:
        looked.append(local.query_id)
        return is_due(local, now_ms, extend_ms=extend_ms, request=request)

    monkeypatch.setattr(LocalSubscription, "is_due", counted)
    assert len(process.followed.due(process.now_ms, most=7)) == len(looked) == 7
    assert len(lives) == len(process.followed.by_query)
