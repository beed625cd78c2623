"""Writes that concern no query: a cell takes them in unread, and a later registration is judged as if each had been read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from bson import ObjectId

from quaestor.event_layer import offsets
from quaestor.event_layer.codec import decode_image, encode_image
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.write_heads import write_head
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode, Outcome
from quaestor.model import Activated, AfterImage, Cancellation, Cell, GridShape, Registration, WriteKind
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import StreamEntry
from tests.unit.matching.scene import Scene, find, types

NAMESPACES = ("shop.items", "shop.orders", "other.things")
RECORD_KINDS = (WriteKind.INSERT, WriteKind.UPDATE, WriteKind.REPLACE, WriteKind.DELETE)
CELL, SHAPE = Cell(query_partition=0, write_partition=0), GridShape(query_partitions=1, write_partitions=1)
FIRST_VERSION = 1_700_000_000 << 32


def write_of(kind: WriteKind, namespace: str, key: Any, version: int, *, x: int = 1, **rest: Any) -> AfterImage:
    record = None if kind is WriteKind.DELETE else {"_id": key, "x": x}
    return AfterImage(
        namespace=namespace, kind=kind, version=version, key=key, after=record, after_exact=record is not None,
        before_known=kind is WriteKind.INSERT, wall_ms=1_700_000_000_000, **rest,
    )  # fmt: skip


class Pair:
    """Two nodes with the same input: one takes writes in unread where it can, the other one reads all of them."""

    def __init__(self, **limits: Any) -> None:
        self.scenes = [Scene(**limits), Scene(**limits)]
        self.unread = 0

    def write(self, image: AfterImage) -> list[list[Any]]:
        payload = encode_image(image)
        lazy, eager = (scene.node for scene in self.scenes)
        now_ms = self.scenes[0].now_ms
        head, fired = write_head(payload), None
        if head is not None and lazy.pass_over(head[0], head[1], payload, now_ms=now_ms):
            self.unread += 1
            fired = []
        if fired is None:
            fired = lazy.process(decode_image(payload), now_ms=now_ms, encoded=len(payload))
        return [fired, eager.process(decode_image(payload), now_ms=now_ms, encoded=len(payload))]

    def both(self, act: Callable[[MatchingNode], Any]) -> list[Any]:
        return [act(scene.node) for scene in self.scenes]

    def pass_time(self, ms: int) -> None:
        for scene in self.scenes:
            scene.now_ms += ms


def same(outcomes: list[list[Outcome]], *, gapless: bool) -> bool:
    """Equal; rates up to the rounding of sums in another order. A write that a gap drops unread counts in no rate."""
    rates = [[part.write_rate_hz for part in some if isinstance(part, Activated)] for some in outcomes]
    bare = [
        [replace(part, write_rate_hz=0.0) if isinstance(part, Activated) else part for part in some]
        for some in outcomes
    ]
    return bare[0] == bare[1] and (
        rates[0] == pytest.approx(rates[1]) if gapless else rates[0] <= [rate + 1e-9 for rate in rates[1]]
    )


@pytest.mark.parametrize("seed", range(25))
def test_unread_writes_change_no_outcome(seed: int) -> None:
    """Random writes, redeliveries, drops, gaps, ticks and registrations: a node that reads all has the same outcomes."""
    random, pair = Random(seed), Pair(retention_ms=5_000)
    version, sent, counter = FIRST_VERSION, [], 0
    lives: list[Registration] = []
    gapless = True
    for _ in range(250):
        pair.pass_time(random.choice((0, 1, 40)))
        now_ms, step = pair.scenes[0].now_ms, random.random()
        version += random.choice((0, 1, 1, 1 << 32))
        if step < 0.72:
            image = write_of(
                random.choice(RECORD_KINDS),
                random.choice(NAMESPACES),
                random.randrange(6),
                version,
                x=random.randrange(3),
            )
            sent.append(image)
            outcomes = pair.write(image)
        elif step < 0.77 and sent:
            outcomes = pair.write(random.choice(sent[-8:]))
        elif step < 0.80:
            kind = random.choice((WriteKind.COLLECTION, WriteKind.COLLECTION, WriteKind.GAP))
            gapless = gapless and kind is not WriteKind.GAP
            outcomes = pair.write(
                AfterImage(namespace=random.choice(NAMESPACES), kind=kind, version=version, wall_ms=1)
            )
        elif step < 0.84:
            outcomes = pair.write(AfterImage(namespace="*", kind=WriteKind.TICK, version=version, wall_ms=now_ms))
        elif step < 0.95 or not lives:
            counter += 1
            query = find({"x": random.choice((0, {"$gte": 1}))}, namespace=random.choice(NAMESPACES))
            read_at = max(version - random.choice((0, 1, 3 << 32)), 1)
            registration = pair.scenes[0].registration(
                query, tuple(random.sample(range(6), 2)), since=read_at, registration_id=f"app:{counter}"
            )
            lives.append(registration)
            outcomes = pair.both(lambda node: node.register(registration, now_ms=now_ms))  # noqa: B023
        else:
            gone = lives.pop(random.randrange(len(lives)))
            message = Cancellation(tenant=gone.tenant, query_id=gone.query_id, registration_ids=(gone.id,))
            pair.both(lambda node: node.cancel(message))  # noqa: B023
            outcomes = [[], []]
        assert same(outcomes, gapless=gapless), (seed, outcomes)
        assert pair.scenes[0].node.watermark == pair.scenes[1].node.watermark
        assert pair.scenes[0].node.tally.writes >= pair.scenes[1].node.tally.writes
    assert pair.unread > 20


@pytest.mark.parametrize("limits", [{"max_images": 20}, {"max_image_bytes": 20_000}, {"retention_ms": 100}], ids=str)
def test_unread_writes_are_dropped_within_the_same_bounds(limits: dict[str, int]) -> None:
    """A registration from before the oldest kept write is refused, and one from after it is accepted."""
    random, pair = Random(1), Pair(**limits)
    registrations = 0
    for number in range(300):
        pair.pass_time(7)
        version = FIRST_VERSION + 2 * number
        pair.write(write_of(WriteKind.REPLACE, random.choice(NAMESPACES), random.randrange(9), version))
        if number % 11 == 0:
            registrations += 1
            back = random.choice((2, 10, 60))
            registration = pair.scenes[0].registration(
                find({"x": 5}, namespace=NAMESPACES[0]), (77,), since=version - back, registration_id=f"app:{number}"
            )
            outcomes = pair.both(lambda node: node.register(registration, now_ms=pair.scenes[0].now_ms))  # noqa: B023
            assert types(outcomes[0]) == types(outcomes[1])
            if types(outcomes[0]) == ["Activated"] and random.random() < 0.8:
                message = Cancellation(tenant="t", query_id=registration.query_id, registration_ids=(registration.id,))
                pair.both(lambda node: node.cancel(message))  # noqa: B023
    assert registrations > 20
    assert pair.unread > 100


def test_an_unreadable_write_ends_the_results_that_it_may_have_changed() -> None:
    """Its head names the collection, so a registration there ends; other collections are not concerned."""
    scene = Scene()
    version = FIRST_VERSION
    payload = encode_image(write_of(WriteKind.INSERT, NAMESPACES[0], "key", version))
    broken = payload.replace(b"\x02key\0", b"\x7bkey\0")
    assert broken != payload
    assert write_head(broken) == (NAMESPACES[0], version, 1_700_000_000_000)
    assert scene.node.pass_over(NAMESPACES[0], version, broken, now_ms=scene.now_ms)
    assert types(scene.register(find({"x": 9}), (1,), since=version - 1)) == ["match"]
    assert types(scene.register(find({"x": 9}, namespace=NAMESPACES[1]), (1,), since=version - 1)) == ["Activated"]


def test_an_unreadable_write_is_a_reported_failure() -> None:
    """The cell counts it with its maintenance, once."""
    node = MatchingNode(CELL, SHAPE, retention_ms=60_000)
    telemetry = Telemetry()
    context = LoopContext(deployment="d", heartbeat_ms=100, telemetry=telemetry)
    loop = CellLoop(node, MemoryEventLayer(), CELL, SHAPE, context)
    broken = encode_image(write_of(WriteKind.INSERT, NAMESPACES[0], "key", FIRST_VERSION)).replace(
        b"\x02key\0", b"\x7bkey\0"
    )
    loop.parts.write_events.take(StreamEntry("s", offsets.offset(1, 0, "e"), broken))
    node.process(write_of(WriteKind.INSERT, NAMESPACES[0], "other", FIRST_VERSION + 1), now_ms=1)
    for _ in range(2):
        loop.parts.periodic.maintain(loop.position, waiting=False)
        counted = telemetry.families.registry.get_sample_value("quaestor_failures_total", {"part": "event-layer"})
        assert counted == 1


def test_only_writes_of_records_have_a_head() -> None:
    """Ticks, gaps, collection events, other messages and cut payloads are decoded as before."""
    image = write_of(WriteKind.UPDATE, "shop.é", ObjectId(), FIRST_VERSION, changed=("a",))
    payload = encode_image(image)
    assert write_head(payload) == ("shop.é", FIRST_VERSION, 1_700_000_000_000)
    assert [write_head(payload[:length]) for length in range(0, 70, 7)] == [None] * 10
    for kind in (WriteKind.TICK, WriteKind.GAP, WriteKind.COLLECTION):
        assert (
            write_head(encode_image(AfterImage(namespace="*", kind=kind, version=FIRST_VERSION, wall_ms=1 << 40)))
            is None
        )
    assert write_head(payload.replace("shop.é".encode(), b"shop.\xff\xff")) is None
    assert write_head(payload.replace(b"\x10v\0\x01", b"\x10v\0\x02")) is None


def test_a_write_that_concerns_no_query_costs_few_calls() -> None:
    """Calls of the whole work of a cell on a write: 27 of Python functions and 30 of C functions before writes stayed unread."""
    node = MatchingNode(CELL, SHAPE, retention_ms=60_000)
    loop = CellLoop(node, MemoryEventLayer(), CELL, SHAPE, LoopContext(deployment="d", heartbeat_ms=100))
    entries = [
        StreamEntry(
            "s",
            offsets.offset(at, 0, "e"),
            encode_image(write_of(WriteKind.INSERT, NAMESPACES[0], at, FIRST_VERSION + at)),
        )
        for at in range(20)
    ]
    for entry in entries[:-1]:
        loop.parts.write_events.take(entry)
    calls = {"call": 0, "c_call": 0}

    def count(_: object, event: str, __: object) -> None:
        if event in calls:
            calls[event] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        loop.parts.write_events.take(entries[-1])
    finally:
        sys.setprofile(before)
    assert calls["call"] <= 13, calls
    assert calls["c_call"] <= 18, calls
    assert node.tally.writes == len(entries)
    assert loop.parts.write_events.position == entries[-1].offset
