"""The sender of queries to the grid: urgent ones at once, others collected."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.registry.query_sender import QuerySender
from quaestor.observability.telemetry import Telemetry

STREAM = "queries"


class CountedLayer(MemoryEventLayer):
    """An event layer as far as a server's, and a count of the calls to it."""

    immediate = False

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[list[bytes]] = []

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        super().append(stream, payloads)
        self.appends.append(list(payloads))


@pytest.fixture
def layer() -> Iterator[CountedLayer]:
    layer = CountedLayer()
    yield layer
    layer.close()


def names(n: int) -> list[bytes]:
    return [str(i).encode() for i in range(n)]


def ended() -> threading.Event:
    """A stop that is set: what waits is sent, and nothing more."""
    stop = threading.Event()
    stop.set()
    return stop


def sent(layer: MemoryEventLayer) -> list[bytes]:
    return [entry.payload for entry in layer.read({STREAM: "0"}, count=1_000, block_ms=0)]


def test_queries_without_a_waiter_go_with_the_next_urgent_one(layer: CountedLayer) -> None:
    """A hundred of them and an urgent one are one round trip, and none is lost."""
    sender = QuerySender(layer, Telemetry())
    for name in names(100):
        sender.send_later(STREAM, name)
    sender.send(STREAM, b"now")
    sender.end()
    sender.run(ended())
    assert layer.appends == [[b"now", *names(100)]]


def test_messages_that_nobody_waits_for_go_by_themselves_in_the_end(layer: CountedLayer) -> None:
    """All of it in order, in far fewer round trips than events, with nothing sent besides."""
    sender = QuerySender(layer, Telemetry())
    stop = threading.Event()
    thread = threading.Thread(target=sender.run, args=(stop,))
    thread.start()
    for name in names(1_000):
        sender.send_later(STREAM, name)
    while len(sent(layer)) < 1_000:
        layer.read({STREAM: layer.read({STREAM: "0"}, count=1_000, block_ms=1_000)[-1].offset}, count=1, block_ms=50)
    stop.set()
    sender.end()
    thread.join()
    assert sent(layer) == names(1_000)
    assert len(layer.appends) <= 100


def test_urgent_messages_are_not_behind_waiting_ones(layer: CountedLayer) -> None:
    """A cancellation comes behind the registration that was sent before it, never in front of it."""
    sender = QuerySender(layer, Telemetry())
    sender.send(STREAM, b"registration")
    sender.send_later(STREAM, b"its cancellation")
    sender.send(STREAM, b"another registration")
    sender.end()
    sender.run(ended())
    assert sent(layer) == [b"registration", b"another registration", b"its cancellation"]


def test_the_end_leaves_nothing_behind(layer: CountedLayer) -> None:
    sender = QuerySender(layer, Telemetry())
    sender.send_later(STREAM, b"last")
    sender.end()
    sender.run(ended())
    assert sent(layer) == [b"last"]


def test_in_a_process_of_its_own_only_what_somebody_waits_for_is_appended_by_the_caller() -> None:
    """Embedded: a registration takes no hop to another thread, a cancellation holds nobody up."""
    layer = MemoryEventLayer()
    sender = QuerySender(layer, Telemetry())
    sender.send_later(STREAM, b"cancellation")
    sender.send(STREAM, b"registration")
    assert sent(layer) == [b"registration"]
    sender.end()
    sender.run(ended())
    assert sent(layer) == [b"registration", b"cancellation"]
    layer.close()
