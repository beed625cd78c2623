"""Event layers of every implementation, against the contract of `ports.EventLayer`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import streams
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.offsets import appended_at_ms
from quaestor.ports import EventLayer, LeasingLayer, MeasuredPipelines, ReadingAppends, StreamEntry

MakeLayer = Callable[[], EventLayer]


@pytest.fixture(params=["memory", "redis", "cluster"])
def layer(request: pytest.FixtureRequest, prefix: str) -> Iterator[EventLayer]:
    make: Mapping[str, MakeLayer] = {
        "memory": MemoryEventLayer,
        "redis": lambda: event_layer(request.getfixturevalue("redis_url"), prefix),
        "cluster": lambda: event_layer(request.getfixturevalue("redis_cluster_url"), prefix),
    }
    made = make[request.param]()
    yield made
    made.close()


@pytest.fixture
def name(prefix: str) -> str:
    return streams.writes(prefix, 0)


def payloads(entries: list[StreamEntry]) -> list[bytes]:
    return [entry.payload for entry in entries]


def read(layer: EventLayer, stream: str, after: str = "0", *, count: int = 100, block_ms: int = 0) -> list[StreamEntry]:
    return layer.read({stream: after}, count=count, block_ms=block_ms)


def test_entries_are_read_in_the_order_they_were_appended(layer: EventLayer, name: str) -> None:
    layer.append(name, [b"1", b"2"])
    layer.append(name, [b"3"])
    entries = read(layer, name)
    assert payloads(entries) == [b"1", b"2", b"3"]
    assert [entry.stream for entry in entries] == [name] * 3


def test_reading_removes_nothing_and_goes_on_after_the_offset(layer: EventLayer, name: str) -> None:
    layer.append(name, [b"1", b"2", b"3"])
    first = read(layer, name)
    assert read(layer, name) == first
    assert payloads(read(layer, name, first[0].offset)) == [b"2", b"3"]
    assert read(layer, name, first[-1].offset) == []


def test_offsets_are_ordered_as_text(layer: EventLayer, name: str) -> None:
    for _ in range(3):
        layer.append(name, [b"x"] * 20)
    offsets = [entry.offset for entry in read(layer, name)]
    assert len(set(offsets)) == 60
    assert offsets == sorted(offsets)
    assert min(offsets) > "0"


def test_count_bounds_each_stream_and_the_rest_comes_next(layer: EventLayer, prefix: str) -> None:
    left, right = streams.writes(prefix, 0), streams.queries(prefix, 0)
    layer.append(left, [b"l1", b"l2", b"l3"])
    layer.append(right, [b"r1"])
    entries = layer.read({left: "0", right: "0"}, count=2, block_ms=0)
    assert sorted(payloads(entries)) == [b"l1", b"l2", b"r1"]
    assert payloads(read(layer, left, entries[1].offset if entries[1].stream == left else entries[2].offset)) == [b"l3"]


def test_payloads_are_opaque_bytes(layer: EventLayer, name: str) -> None:
    odd = [b"", b"\x00\xff\r\n", bytes(range(256)) * 4096]
    layer.append(name, odd)
    assert payloads(read(layer, name)) == odd


def test_appending_nothing_does_nothing(layer: EventLayer, name: str) -> None:
    layer.append(name, [])
    assert layer.first_offset(name) is None


def test_a_stream_that_does_not_exist_is_empty(layer: EventLayer, name: str) -> None:
    assert read(layer, name) == []
    assert layer.first_offset(name) is None
    layer.trim(name, before_ms=0)


def test_a_blocked_reader_is_woken_by_an_append(layer: EventLayer, prefix: str) -> None:
    """The reader gets the entry although its own wait would have lasted two minutes: it was woken, not timed out."""
    quiet, busy = streams.writes(prefix, 0), streams.writes(prefix, 1)
    reading = threading.Event()
    entries: list[StreamEntry] = []

    def reader() -> None:
        reading.set()
        while not entries:
            entries.extend(layer.read({quiet: "0", busy: "0"}, count=10, block_ms=120_000))

    with ThreadPoolExecutor() as pool:
        done = pool.submit(reader)
        assert reading.wait(10)
        layer.append(busy, [b"x"])
        done.result(timeout=20)
    assert payloads(entries) == [b"x"]


def test_a_wait_ends_empty_handed_when_nothing_comes(layer: EventLayer, name: str) -> None:
    layer.append(name, [b"1"])
    after = read(layer, name)[-1].offset
    assert read(layer, name, after, block_ms=20) == []


def test_offset_at_a_moment_finds_everything_appended_since(layer: EventLayer, name: str) -> None:
    layer.append(name, [b"old"])
    old_ms = int(read(layer, name)[0].offset.split("-")[0])
    while time.time_ns() // 1_000_000 <= old_ms + 1:
        pass
    layer.append(name, [b"new", b"newer"])
    new_ms = int(read(layer, name)[1].offset.split("-")[0])
    assert payloads(read(layer, name, layer.offset_at(name, old_ms))) == [b"old", b"new", b"newer"]
    assert payloads(read(layer, name, layer.offset_at(name, new_ms))) == [b"new", b"newer"]
    assert payloads(read(layer, name, layer.offset_at(name, 0))) == [b"old", b"new", b"newer"]


def test_trimming_forgets_what_is_older_and_nothing_else(layer: EventLayer, name: str) -> None:
    layer.append(name, [b"old"])
    old = read(layer, name)[0]
    old_ms = int(old.offset.split("-")[0])
    while time.time_ns() // 1_000_000 <= old_ms + 1:
        pass
    layer.append(name, [b"new"])
    new = read(layer, name)[1]
    layer.trim(name, before_ms=old_ms)
    assert layer.first_offset(name) == old.offset
    layer.trim(name, before_ms=old_ms + 1)
    assert layer.first_offset(name) == new.offset
    assert payloads(read(layer, name)) == [b"new"]


def test_several_pipelines_are_trimmed_and_measured_at_once(layer: EventLayer, prefix: str) -> None:
    kept, emptied, unknown = streams.writes(prefix, 0), streams.queries(prefix, 1), streams.matched(prefix, 2)
    for stream in (kept, emptied):
        layer.append(stream, [b"x" * 1_000] * 3)
    (newest,) = read(layer, emptied)[-1:]
    after_ms = appended_at_ms(newest.offset) + 1
    assert isinstance(layer, MeasuredPipelines)
    sizes = layer.trim_and_measure({kept: None, emptied: after_ms, unknown: after_ms})
    assert {stream: size.entries for stream, size in sizes.items()} == {kept: 3, emptied: 0, unknown: 0}
    assert sizes[kept].bytes >= 3_000
    assert sizes[kept][:2] == layer.measure(kept)[:2]
    assert all(abs(size.at_ms - after_ms) < 60_000 for size in sizes.values())
    assert read(layer, emptied) == []


def test_a_reader_can_tell_whether_entries_were_trimmed_before_it_read_them(layer: EventLayer, name: str) -> None:
    layer.append(name, [b"1"])
    position = read(layer, name)[0].offset
    at_ms = int(position.split("-")[0])
    assert not streams.missed(position, layer.first_offset(name))
    assert not streams.missed("0", layer.first_offset(name))
    while time.time_ns() // 1_000_000 <= at_ms + 1:
        pass
    layer.append(name, [b"2"])
    layer.trim(name, before_ms=at_ms + 1)
    assert streams.missed(position, layer.first_offset(name))
    assert not streams.missed(layer.offset_at(name, at_ms), layer.first_offset(name))


def test_order_survives_trimming_to_nothing(layer: EventLayer, name: str) -> None:
    layer.append(name, [b"1"])
    last = read(layer, name)[0].offset
    layer.trim(name, before_ms=2**42)
    assert layer.first_offset(name) is None
    layer.append(name, [b"2"])
    assert payloads(read(layer, name, last)) == [b"2"]


def test_values_are_kept_by_name(layer: EventLayer, prefix: str) -> None:
    value = streams.resume_position(prefix)
    assert layer.get(value) is None
    layer.put(value, b"\x00one")
    layer.put(value, b"two")
    assert layer.get(value) == b"two"


@pytest.mark.parametrize("number", [0, 1, 3])
def test_an_append_returns_a_value_along(layer: EventLayer, name: str, prefix: str, number: int) -> None:
    """The value is the present one, and what is appended is what `append` appends."""
    if not isinstance(layer, ReadingAppends):
        pytest.skip("the value may lie on another server")
    beside, payloads = streams.awaited(prefix), [b"%d" % place for place in range(number)]
    assert layer.append_and_get(name, payloads, beside) is None
    layer.put(beside, b"now")
    assert layer.append_and_get(name, payloads, beside) == b"now"
    assert [entry.payload for entry in layer.read({name: "0"}, count=10, block_ms=0)] == 2 * payloads


def test_concurrent_appends_keep_each_thread_s_order_and_lose_nothing(layer: EventLayer, name: str) -> None:
    def appender(thread: int) -> None:
        for i in range(50):
            layer.append(name, [b"%d:%d" % (thread, 2 * i), b"%d:%d" % (thread, 2 * i + 1)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(appender, range(4)))
    read_back = payloads(read(layer, name, count=1000))
    assert len(read_back) == 400
    for thread in range(4):
        own = [int(payload.split(b":")[1]) for payload in read_back if payload.startswith(b"%d:" % thread)]
        assert own == list(range(100))


def test_an_offset_of_another_life_of_the_data_is_refused(layer: EventLayer, name: str) -> None:
    layer.append(name, [b"1"])
    foreign = read(layer, name)[0].offset.split("@")[0] + "@another"
    with pytest.raises(EventLayerResetError):
        read(layer, name, foreign)


def test_a_closed_layer_says_so(layer: EventLayer, name: str) -> None:
    layer.append(name, [b"1"])
    layer.close()
    with pytest.raises(EventLayerError):
        layer.append(name, [b"2"])
    with pytest.raises(EventLayerError):
        read(layer, name)


def leasing(layer: EventLayer) -> LeasingLayer:
    assert isinstance(layer, LeasingLayer)
    return layer


def test_a_lease_is_one_holders_until_it_ends(layer: EventLayer, prefix: str) -> None:
    leases, name = leasing(layer), streams.leader(prefix)
    assert leases.leaseholder(name) is None
    assert leases.lease(name, "a", lease_ms=60_000)
    assert leases.lease(name, "a", lease_ms=60_000), "prolonged"
    assert not leases.lease(name, "b", lease_ms=60_000)
    leases.release(name, "b")
    assert leases.leaseholder(name) == "a", "only the holder ends it"
    leases.release(name, "a")
    assert leases.leaseholder(name) is None
    assert leases.lease(name, "b", lease_ms=1)
    deadline = time.monotonic() + 20
    while not leases.lease(name, "c", lease_ms=60_000):
        assert time.monotonic() < deadline, "a lease ends by itself"


def test_a_value_is_swapped_only_for_the_one_that_is_named(layer: EventLayer, prefix: str) -> None:
    values, name = leasing(layer), streams.grid(prefix)
    assert not values.swap(name, b"a", b"b"), "there is none"
    assert layer.get(name) is None
    assert values.swap(name, None, b"a")
    assert not values.swap(name, None, b"b")
    assert not values.swap(name, b"", b"b")
    assert layer.get(name) == b"a"
    assert values.swap(name, b"a", b"\x00\xff")
    assert layer.get(name) == b"\x00\xff"
    assert values.swap(name, b"\x00\xff", b"")
    assert values.swap(name, b"", b"c")
    assert layer.get(name) == b"c"


def test_a_closed_layer_is_reopened_with_its_data_or_as_another_one(layer: EventLayer, name: str) -> None:
    """A server still has its data after reopening.

    Memory is empty, and refuses offsets from before instead of taking them for new ones.
    """
    layer.append(name, [b"1"])
    before = read(layer, name)[0].offset
    layer.close()
    layer.reopen()
    if isinstance(layer, MemoryEventLayer):
        assert read(layer, name) == []
        with pytest.raises(EventLayerResetError):
            read(layer, name, before)
        before = "0"
    layer.append(name, [b"2"])
    assert payloads(read(layer, name, before)) == [b"2"]
    layer.reopen()
    assert payloads(read(layer, name, before)) == [b"2"]
