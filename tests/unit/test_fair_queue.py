"""Tenants take turns at a cell: a flood of one does not hold up another's single registration."""

from __future__ import annotations

import random
from collections.abc import Iterator

import bson
import pytest

from quaestor.clock import system_clock
from quaestor.event_layer import offsets, streams
from quaestor.event_layer.codec import decode_notification, encode_image, encode_query_event
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.fair_queue import FairQueue
from quaestor.invalidation.grid.lease_horizon import LeaseHorizon
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import (
    Activated,
    AfterImage,
    Cancellation,
    Cell,
    GridShape,
    Operation,
    Query,
    Registration,
    WriteKind,
)
from quaestor.ports import EventLayer, StreamEntry

CELL = Cell(query_partition=0, write_partition=0)
SHAPE = GridShape(query_partitions=1, write_partitions=1)
FLOOD = 10_000
STEPS = 8
"""Four to read the flood, one for the turn, and some to spare; without turns it would take fifty."""


LEASED_UNTIL_MS = system_clock() + 86_400_000


def registration(tenant: str, number: int, *, expires_at_ms: int = LEASED_UNTIL_MS) -> Registration:
    return Registration(
        id=f"{tenant}~x:{number}", tenant=tenant, query_id=f"{tenant}{number}",
        query=Query(namespace="d.c", operation=Operation.FIND, filter={"a": f"{tenant}{number}"}),
        since=5, read_at=5, members=(), last=None, expires_at_ms=expires_at_ms,
    )  # fmt: skip


def entry(number: int, payload: bytes) -> StreamEntry:
    return StreamEntry("s", offsets.offset(1_000 + number, 0, "e"), payload)


def test_everything_is_taken_once_in_the_order_of_its_tenant_and_nothing_is_said_to_be_done_before_it_is() -> None:
    seed = random.SystemRandom().randrange(2**32)
    dice = random.Random(seed)
    print(f"seed={seed}")
    backlog, leases = FairQueue(), LeaseHorizon()
    entries = [
        entry(number, encode_query_event(registration(dice.choice(["a", "b", "b", "c"]), number)))
        for number in range(2_000)
    ]
    owner = {entry.offset: f"{number}" for number, entry in enumerate(entries)}
    taken: list[StreamEntry] = []
    waiting = entries
    while waiting or backlog:
        many = dice.choice([0, 1, 50, 500])
        backlog.arrived(waiting[:many], leases)
        waiting = waiting[many:]
        taken += backlog.take(dice.choice([1, 30, 100]))
        done = {entry.offset for entry in taken}
        assert all(entry.offset in done for entry in entries if entry.offset <= backlog.worked_off)
    assert backlog.worked_off == entries[-1].offset
    assert len(taken) == len(owner) == 2_000
    for tenant in (b"a~", b"b~", b"c~"):
        mine = [entry.offset for entry in taken if tenant in entry.payload]
        assert mine == sorted(mine)


def test_waiting_tenants_take_turns_one_by_one() -> None:
    backlog = FairQueue()
    tenants = ["a"] * 5 + ["b"] * 2 + ["c"]
    entries = [entry(number, encode_query_event(registration(name, number))) for number, name in enumerate(tenants)]
    backlog.arrived(entries, LeaseHorizon())
    order = [tenants[entries.index(entry)] for entry in backlog.take(100)]
    assert order == ["a", "b", "c", "a", "b", "a", "a", "a"]


def test_it_is_bounded_and_what_nobody_understands_has_a_turn_too() -> None:
    backlog = FairQueue(most_entries=3)
    backlog.arrived([entry(number, b"not bson") for number in range(3)], LeaseHorizon())
    assert backlog.full
    assert len(backlog.take(2)) == 2
    assert not backlog.full
    big = FairQueue(most_bytes=10)
    big.arrived([entry(1, b"x" * 10)], LeaseHorizon())
    assert big.full


def test_costly_items_let_others_go_first() -> None:
    """One of two tenants sends what takes a second each; the other's hundred are done before its third."""
    backlog, leases = FairQueue(), LeaseHorizon()
    payloads = [encode_query_event(registration("a", number)) for number in range(10)]
    payloads += [encode_query_event(registration("b", number)) for number in range(100)]
    backlog.arrived([entry(number, payload) for number, payload in enumerate(payloads)], leases)
    now_s, done = [0.0], ""
    while backlog:
        for turn in backlog.turns(50, within_s=0.1, clock=lambda: now_s[0]):
            tenant = bson.decode(turn.payload)["tenant"]
            done += tenant
            now_s[0] += 1.0 if tenant == "a" else 0.001
    assert len(done) == 110
    assert done.index("aa") > done.rindex("b") >= 100, "and when nobody else waits, there is nobody to let go first"
    assert 1 <= done[: done.rindex("b")].count("a") <= 2


def test_a_step_is_over_when_its_time_is() -> None:
    backlog, leases = FairQueue(), LeaseHorizon()
    payloads = [encode_query_event(registration("a", number)) for number in range(10)]
    backlog.arrived([entry(number, payload) for number, payload in enumerate(payloads)], leases)
    now_s, done = [0.0], 0
    for _ in backlog.turns(200, within_s=0.1, clock=lambda: now_s[0]):
        now_s[0] += 0.06
        done += 1
    assert done == 2
    assert len(backlog) == 8


def test_leases_are_noted_in_the_order_of_the_pipeline() -> None:
    """In another order the pipeline would be trimmed behind a tenant whose turn comes late."""
    backlog, leases = FairQueue(), LeaseHorizon()
    payloads = [
        encode_query_event(registration("a", 1, expires_at_ms=100)),
        encode_query_event(registration("a", 2, expires_at_ms=5_000)),
        encode_query_event(Cancellation(tenant="a", query_id="q", registration_ids=("x",))),
        encode_query_event(registration("b", 3, expires_at_ms=9_000)),
    ]
    backlog.arrived([entry(number, payload) for number, payload in enumerate(payloads)], leases)
    backlog.take(10)
    assert leases.needed_since_ms(50) == 1_000
    assert leases.needed_since_ms(200) == 1_001
    assert leases.needed_since_ms(6_000) == 1_003


@pytest.fixture(params=["memory", "redis"])
def layer(request: pytest.FixtureRequest, prefix: str) -> Iterator[EventLayer]:
    made: EventLayer = (
        MemoryEventLayer()
        if request.param == "memory"
        else RedisEventLayer(request.getfixturevalue("redis_url"), prefix)
    )
    yield made
    made.close()


class Flooded:
    """A cell that is driven by hand, with a flood of one tenant in its query pipeline and one registration of another."""

    def __init__(self, layer: EventLayer, deployment: str) -> None:
        self.layer, self.deployment = layer, deployment
        tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=5, wall_ms=system_clock())
        layer.append(streams.writes(deployment, 0), [encode_image(tick)])
        self.start()
        self.step()
        flood = [encode_query_event(registration("a", number)) for number in range(FLOOD)]
        for begin in range(0, FLOOD, 1_000):
            layer.append(streams.queries(deployment, 0), flood[begin : begin + 1_000])
        layer.append(streams.queries(deployment, 0), [encode_query_event(registration("b", 1))])

    def start(self) -> None:
        self.node = MatchingNode(CELL, SHAPE, retention_ms=60_000)
        self.loop = CellLoop(
            self.node,
            self.layer,
            CELL,
            SHAPE,
            LoopContext(deployment=self.deployment, heartbeat_ms=1, retention_ms=60_000),
        )
        self.loop.start()

    def step(self) -> None:
        self.loop.parts.periodic.heartbeat_due_s = 0.0
        self.loop.step()

    def finish(self) -> None:
        """How many steps that takes depends on the machine: each deals with what it can in a tenth of a second."""
        while self.node.registrations <= FLOOD:
            before = self.node.registrations
            self.step()
            assert self.node.registrations > before, "and nothing is forgotten"

    def activated(self, tenant: str) -> list[str]:
        stream = streams.notifications(self.deployment, tenant)
        said = map(
            decode_notification, (entry.payload for entry in self.layer.read({stream: "0"}, count=50_000, block_ms=0))
        )
        return [message.registration_id for message in said if isinstance(message, Activated)]


def test_after_a_flood_of_one_tenant_anothers_registration_is_active_within_a_few_steps(
    layer: EventLayer, prefix: str
) -> None:
    """Counted in steps of the cell and in registrations of the flood that were dealt with before; not timed."""
    flooded = Flooded(layer, prefix)
    for _ in range(STEPS):
        flooded.step()
        if flooded.activated("b"):
            break
    assert flooded.activated("b") == ["b~x:1"]
    assert 0 < len(flooded.activated("a")) <= STEPS * 200
    flooded.finish()
    assert len(flooded.activated("a")) == FLOOD


def test_writes_have_their_turn_in_every_step_of_a_flood(layer: EventLayer, prefix: str) -> None:
    flooded = Flooded(layer, prefix)
    for version in range(6, 12):
        image = AfterImage(namespace="d.c", kind=WriteKind.INSERT, version=version, key=version, after={"_id": version})
        layer.append(streams.writes(prefix, 0), [encode_image(image)])
        flooded.step()
        assert flooded.node.watermark == version


def test_a_cell_that_dies_amid_a_flood_loses_nothing(layer: EventLayer, prefix: str) -> None:
    """The next cell repeats the work of early turns, and waiting work is not forgotten."""
    flooded = Flooded(layer, prefix)
    for _ in range(STEPS):
        flooded.step()
    assert flooded.activated("b")
    assert flooded.node.registrations < FLOOD
    flooded.start()
    flooded.finish()
    assert flooded.node.registrations == FLOOD + 1
    assert set(flooded.activated("a")) == {f"a~x:{number}" for number in range(FLOOD)}
