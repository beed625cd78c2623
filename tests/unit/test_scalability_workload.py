"""The workload of the scalability benchmark is the papers': its figures mean nothing otherwise."""

from __future__ import annotations

import pytest

from benchmarks.scalability.workload import Collections, Load, cancellations, records, registration, tick, writes
from quaestor.event_layer.codec import decode_image, decode_query_event
from quaestor.invalidation.grid.event_authorization import authorized
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Cancellation, Cell, GridShape, Registration

NOW_MS = 1_000_000_000


def node_with(load: Load) -> MatchingNode:
    node = MatchingNode(
        Cell(query_partition=0, write_partition=0),
        GridShape(query_partitions=1, write_partitions=1),
        retention_ms=60_000,
    )
    node.process(decode_image(tick()), now_ms=NOW_MS)
    numbers = [*range(load.background), *(100_000_000 + load.experiment * 1_000 + n for n in range(load.measured))]
    for number in numbers:
        event = decode_query_event(registration(number, load.collections, since=node.watermark))
        assert isinstance(event, Registration)
        node.register(authorized(event, "bench"), now_ms=NOW_MS)
    assert node.registrations == len(numbers)
    return node


@pytest.mark.parametrize("collections", [1, 10])
def test_each_measured_query_is_matched_by_exactly_its_write_and_no_other_query_ever(collections: int) -> None:
    load = Load(
        experiment=3,
        rate_hz=1_000,
        seconds=0.5,
        background=200,
        write_partitions=2,
        collections=Collections(count=collections),
        measured=20,
    )
    node = node_with(load)
    made = list(writes(load, start_ms=2_100_000_000_000))
    assert len(made) == load.writes
    assert {write.partition for write in made} == {0, 1}
    for write in made:
        fired = node.process(decode_image(write.payload), now_ms=NOW_MS)
        assert len(fired) == (write.measured >= 0)
    assert [write.measured for write in made if write.measured >= 0] == list(range(load.measured))
    assert node.registrations == load.background


def test_records_are_as_large_as_the_papers() -> None:
    load = Load(
        experiment=1, rate_hz=100, seconds=1, background=10, write_partitions=1, collections=Collections(), measured=5
    )
    for _, record, _ in records(load):
        fields = [value for name, value in record.items() if name != "_id"]
        assert [len(value) for value in fields if isinstance(value, str)] == [10] * 5
        assert sum(isinstance(value, int) for value in fields) == 5


@pytest.mark.parametrize("collections", [1, 10])
def test_cancellations_take_back_what_was_registered(collections: int) -> None:
    load = Load(
        experiment=1,
        rate_hz=100,
        seconds=1,
        background=50,
        write_partitions=1,
        collections=Collections(count=collections),
        measured=5,
    )
    node = node_with(load)
    for payload in cancellations(range(10, 50), load.collections):
        event = decode_query_event(payload)
        assert isinstance(event, Cancellation)
        node.cancel(authorized(event, "bench"))
    assert node.registrations == 10 + load.measured
