"""Cache Sketches of every implementation. The real pybloom_live reads the snapshots, as clients do."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable

import pybloom_live
import pytest

from quaestor.cache_sketch import MemoryCacheSketch, RedisCacheSketch, wire_format
from quaestor.cache_sketch.limits import Limits
from quaestor.cache_sketch.partitions import MAX_PARTITIONS, in_partition, token_of
from quaestor.cache_sketch.sizing import BODY_BYTES, DEFAULT
from quaestor.ports import CacheSketch
from quaestor.redis.clients import SharedClient

pytestmark = pytest.mark.anyio

NOW_MS = 1_700_000_000_000
MakeSketch = Callable[..., CacheSketch]


@pytest.fixture(params=["memory", "redis"])
def make(request: pytest.FixtureRequest, client: SharedClient, prefix: str) -> MakeSketch:
    """make(limits=...): a new, empty sketch."""
    if request.param == "memory":
        return MemoryCacheSketch
    return lambda **options: RedisCacheSketch(client, deployment=prefix, **options)


async def stale(sketch: CacheSketch, now_ms: int) -> pybloom_live.BloomFilter:
    return pybloom_live.BloomFilter.fromfile(io.BytesIO(await sketch.snapshot(now_ms=now_ms)))


async def test_an_empty_sketch_contains_nothing(make: MakeSketch) -> None:
    sketch = make()
    assert len(await sketch.snapshot(now_ms=NOW_MS)) == BODY_BYTES
    assert "/a" not in await stale(sketch, NOW_MS)


async def test_a_written_resource_is_in_it_until_its_last_copy_is_dead(make: MakeSketch) -> None:
    sketch = make()
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 5_000, now_ms=NOW_MS)
    assert "/a" not in await stale(sketch, NOW_MS)
    assert await sketch.report_write(["/a"], now_ms=NOW_MS + 1_000) == [4_000]
    filter_ = await stale(sketch, NOW_MS + 4_999)
    assert "/a" in filter_
    assert "/b" not in filter_
    assert len(filter_) == 1
    gone = await stale(sketch, NOW_MS + 5_000)
    assert "/a" not in gone
    assert not gone.bitarray.any()


async def test_a_resource_that_leaves_takes_no_bit_of_another_with_it(make: MakeSketch) -> None:
    """Two resources that share a position, removed one after the other, in both orders."""
    first = "/0"
    shared = set(wire_format.positions(wire_format.digest(first), DEFAULT))
    second = next(
        n for n in map(str, range(100_000)) if shared & set(wire_format.positions(wire_format.digest(n), DEFAULT))
    )
    sketch = make()
    for at_ms, short, long in ((NOW_MS, first, second), (NOW_MS + 10_000, second, first)):
        await sketch.report_read(short, expires_at_ms=at_ms + 1_000, now_ms=at_ms)
        await sketch.report_read(long, expires_at_ms=at_ms + 2_000, now_ms=at_ms)
        await sketch.report_write([short, long], now_ms=at_ms)
        left = await stale(sketch, at_ms + 1_000)
        assert long in left
        assert left.bitarray.count() == 4
        assert not (await stale(sketch, at_ms + 2_000)).bitarray.any()


async def test_a_write_to_what_nobody_keeps_needs_no_purge(make: MakeSketch) -> None:
    sketch = make()
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    assert await sketch.report_write(["/never", "/a", "/a"], now_ms=NOW_MS + 1_000) == [0, 0, 0]
    assert len(await stale(sketch, NOW_MS + 1_000)) == 0


async def test_the_latest_expiry_of_any_copy_counts(make: MakeSketch) -> None:
    """A later, shorter-lived copy does not make the sketch forget the longer-lived one."""
    sketch = make()
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS)
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 2_000, now_ms=NOW_MS + 1)
    assert await sketch.report_write(["/a"], now_ms=NOW_MS + 2) == [8_998]
    assert "/a" in await stale(sketch, NOW_MS + 8_999)


async def test_writing_again_counts_once(make: MakeSketch) -> None:
    """A repeated write neither counts up again, so that one removal suffices, nor shortens the stay."""
    sketch = make()
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 5_000, now_ms=NOW_MS)
    for _ in range(5):
        await sketch.report_write(["/a", "/a"], now_ms=NOW_MS + 1)
    assert len(await stale(sketch, NOW_MS + 2)) == 1
    assert not (await stale(sketch, NOW_MS + 5_000)).bitarray.any()


async def test_a_copy_made_after_a_write_is_not_stale_but_a_second_write_makes_it_so(make: MakeSketch) -> None:
    """The stay ends with the copies that the write made stale; the next write extends it to the newer ones."""
    sketch = make()
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 2_000, now_ms=NOW_MS)
    await sketch.report_write(["/a"], now_ms=NOW_MS + 1)
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS + 2)
    assert "/a" not in await stale(sketch, NOW_MS + 2_000)
    await sketch.report_read("/b", expires_at_ms=NOW_MS + 2_500, now_ms=NOW_MS + 2_000)
    await sketch.report_write(["/b"], now_ms=NOW_MS + 2_000)
    await sketch.report_read("/b", expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS + 2_000)
    assert await sketch.report_write(["/a", "/b"], now_ms=NOW_MS + 2_001) == [6_999, 6_999]
    both = await stale(sketch, NOW_MS + 8_999)
    assert "/a" in both
    assert "/b" in both
    assert not (await stale(sketch, NOW_MS + 9_000)).bitarray.any()


async def test_a_read_that_was_dead_on_arrival_is_not_remembered(make: MakeSketch) -> None:
    sketch = make()
    await sketch.report_read("/a", expires_at_ms=NOW_MS, now_ms=NOW_MS)
    assert await sketch.report_write(["/a"], now_ms=NOW_MS - 10) == [0]


async def test_saturated_it_contains_everything_until_then(make: MakeSketch) -> None:
    """After state was lost: every copy has to be revalidated and purged, whether it is known or not."""
    sketch = make()
    await sketch.report_read("/known", expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS)
    await sketch.saturate(NOW_MS + 5_000)
    await sketch.saturate(NOW_MS + 1_000)
    everything = await stale(sketch, NOW_MS + 4_999)
    assert everything.bitarray.all()
    assert "/anything" in everything
    assert await sketch.report_write(["/unknown", "/known"], now_ms=NOW_MS + 1) == [4_999, 8_999]
    after = await stale(sketch, NOW_MS + 5_000)
    assert "/known" in after
    assert "/unknown" not in after


async def test_many_writes_at_once(make: MakeSketch) -> None:
    """More than one script takes; each resource gets its own answer, in order."""
    sketch = make()
    for i in range(0, 450, 3):
        await sketch.report_read(f"/{i}", expires_at_ms=NOW_MS + 1_000 + i, now_ms=NOW_MS)
    lifetimes_ms = await sketch.report_write([f"/{i}" for i in range(450)], now_ms=NOW_MS)
    assert lifetimes_ms == [1_000 + i if i % 3 == 0 else 0 for i in range(450)]
    assert len(await stale(sketch, NOW_MS)) == 150
    assert await sketch.report_write([], now_ms=NOW_MS) == []


async def test_thousands_that_become_due_at_once_are_gone_from_the_next_snapshot(make: MakeSketch) -> None:
    sketch = make(limits=Limits(snapshot_sweep=50))
    names = [f"/{i}" for i in range(400)]
    await asyncio.gather(*(sketch.report_read(n, expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS) for n in names))
    await sketch.report_write(names, now_ms=NOW_MS)
    assert len(await stale(sketch, NOW_MS)) == 400
    assert not (await stale(sketch, NOW_MS + 1_000)).bitarray.any()


async def test_concurrent_reports_lose_nothing(make: MakeSketch) -> None:
    sketch = make()
    names = [f"/{i}" for i in range(100)]
    await asyncio.gather(*(sketch.report_read(n, expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS) for n in names * 3))
    await asyncio.gather(*(sketch.report_write([n], now_ms=NOW_MS + 1) for n in names * 3))
    filter_ = await stale(sketch, NOW_MS + 2)
    assert all(name in filter_ for name in names)
    assert len(filter_) == 100
    assert not (await stale(sketch, NOW_MS + 1_000)).bitarray.any()


async def test_beyond_its_memory_it_is_vaguer_but_never_wrong(make: MakeSketch) -> None:
    """Copies that are not known one by one still make a write count, and only as long as the longest-lived of them."""
    sketch = make(limits=Limits(max_reads=2))
    for i in range(4):
        await sketch.report_read(f"/{i}", expires_at_ms=NOW_MS + 1_000 * (i + 1), now_ms=NOW_MS)
    assert await sketch.report_write(["/3", "/0"], now_ms=NOW_MS) == [4_000, 4_000]
    assert "/3" in await stale(sketch, NOW_MS + 3_999)
    assert await sketch.report_write(["/3", "/other"], now_ms=NOW_MS + 4_000) == [0, 0]
    await sketch.report_read("/9", expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS + 4_000)
    assert await sketch.report_write(["/9", "/other"], now_ms=NOW_MS + 4_001) == [4_999, 0]


async def test_a_full_filter_reports_everything(make: MakeSketch) -> None:
    sketch = make(limits=Limits(max_stale=2))
    for i in range(3):
        await sketch.report_read(f"/{i}", expires_at_ms=NOW_MS + 1_000 * (i + 1), now_ms=NOW_MS)
    assert await sketch.report_write(["/0", "/1", "/2"], now_ms=NOW_MS) == [1_000, 2_000, 3_000]
    assert (await stale(sketch, NOW_MS + 2_999)).bitarray.all()
    assert not (await stale(sketch, NOW_MS + 3_000)).bitarray.any()


async def test_dead_reads_are_forgotten_as_others_come(make: MakeSketch) -> None:
    """Memory is bounded by what is alive: room taken by dead copies is free again."""
    sketch = make(limits=Limits(max_reads=10))
    for wave in range(20):
        at_ms = NOW_MS + wave * 1_000
        for i in range(10):
            await sketch.report_read(f"/{wave}/{i}", expires_at_ms=at_ms + 500, now_ms=at_ms)
        assert await sketch.report_write(["/unknown"], now_ms=at_ms) == [0]


async def test_hostile_keys_are_kept_by_digest(make: MakeSketch) -> None:
    """Empty, huge, control characters, lone surrogates: kept by their digest alone."""
    sketch = make()
    names = ["", "/" + "x" * 1_000_000, "/\x00\n\r {}", "/\udc80", "/é/北京"]
    for name in names:
        await sketch.report_read(name, expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    assert await sketch.report_write(names, now_ms=NOW_MS) == [1_000] * 5
    filter_ = await stale(sketch, NOW_MS)
    assert all(name in filter_ for name in names if "\udc80" not in name)


async def test_a_clock_that_goes_back_removes_nothing_early(make: MakeSketch) -> None:
    sketch = make()
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    await sketch.report_write(["/a"], now_ms=NOW_MS)
    assert "/a" in await stale(sketch, NOW_MS - 60_000)
    assert "/a" in await stale(sketch, NOW_MS + 999)


async def test_until_a_clock_that_was_set_back_has_caught_up_everything_is_in_it(make: MakeSketch) -> None:
    """A copy that was dead, and forgotten, lives again by the earlier time. Clocks that differ by less than the grace do no
    harm."""
    sketch = make()
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    assert await sketch.report_write([], now_ms=NOW_MS + 60_000) == []
    assert await sketch.report_write(["/a"], now_ms=NOW_MS) == [60_000]
    assert (await stale(sketch, NOW_MS + 57_999)).bitarray.all()
    assert await sketch.report_write(["/a"], now_ms=NOW_MS + 58_000) == [0]
    assert not (await stale(sketch, NOW_MS + 58_000)).bitarray.any()


async def part(sketch: CacheSketch, partition: str, now_ms: int) -> pybloom_live.BloomFilter:
    return pybloom_live.BloomFilter.fromfile(io.BytesIO(await sketch.snapshot(now_ms=now_ms, partition=partition)))


async def test_a_key_of_a_partition_is_in_its_filter_and_in_the_union_and_nowhere_else(make: MakeSketch) -> None:
    """One resource may have copies in several partitions, each reported by itself."""
    sketch, (a, b) = make(), (token_of("a"), token_of("b"))
    await sketch.report_read(in_partition("/1", a), expires_at_ms=NOW_MS + 2_000, now_ms=NOW_MS)
    await sketch.report_read(in_partition("/1", b), expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS)
    await sketch.report_read("/3", expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS)
    written = [in_partition("/1", a), in_partition("/1", b), "/3", in_partition("/2", b)]
    assert await sketch.report_write(written, now_ms=NOW_MS) == [2_000, 9_000, 9_000, 0]
    assert (await sketch.state(now_ms=NOW_MS)).partitions == {a, b}
    first, second, union = await part(sketch, a, NOW_MS), await part(sketch, b, NOW_MS), await stale(sketch, NOW_MS)
    assert ("/1" in first, "/3" in first, len(first)) == (True, False, 1)
    assert ("/1" in second, "/2" in second, len(second)) == (True, False, 1)
    assert ("/1" in union, "/3" in union, "/2" in union, len(union)) == (True, True, False, 3)
    assert not (await part(sketch, a, NOW_MS + 2_000)).bitarray.any()
    assert "/1" in await stale(sketch, NOW_MS + 2_000)
    assert "/1" in await part(sketch, b, NOW_MS + 8_999)
    assert not (await stale(sketch, NOW_MS + 9_000)).bitarray.any()
    assert not (await part(sketch, b, NOW_MS + 9_000)).bitarray.any()
    assert (await sketch.state(now_ms=NOW_MS + 9_000)).removed == 3


async def test_a_partition_that_is_not_known_is_the_union_and_further_ones_are_in_it_alone(make: MakeSketch) -> None:
    """A client that receives a larger part than it requested revalidates more, and never less."""
    sketch = make()
    tokens = [token_of(f"{n}") for n in range(MAX_PARTITIONS + 3)]
    names = [in_partition(f"/{n}", token) for n, token in enumerate(tokens)]
    for name in names:
        await sketch.report_read(name, expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    await sketch.report_write(names, now_ms=NOW_MS)
    assert (await sketch.state(now_ms=NOW_MS)).partitions == set(tokens[:MAX_PARTITIONS])
    for n, token in enumerate(tokens):
        assert f"/{n}" in await part(sketch, token, NOW_MS)
    assert len(await part(sketch, tokens[-1], NOW_MS)) == len(await part(sketch, "00000000", NOW_MS)) == len(tokens)
    for token in ("", *tokens):
        assert not (await part(sketch, token, NOW_MS + 1_000)).bitarray.any()


async def test_a_loss_is_a_loss_of_every_partition(make: MakeSketch) -> None:
    sketch, token = make(), token_of("a")
    await sketch.report_read(in_partition("/1", token), expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS)
    await sketch.report_write([in_partition("/1", token)], now_ms=NOW_MS)
    await sketch.saturate(NOW_MS + 5_000)
    assert (await part(sketch, token, NOW_MS + 4_999)).bitarray.all()
    assert len(await part(sketch, token, NOW_MS + 5_000)) == 1


async def test_answers_handed_out_before_a_start_are_a_loss_of_everything_without_an_epoch(make: MakeSketch) -> None:
    """Without an epoch, earlier and later copies of a partition look alike, so the whole partition counts as lost."""
    sketch, token = make(), token_of("a")
    await sketch.report_read(in_partition("/1", token), expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS)
    await sketch.saturate(NOW_MS + 5_000, earlier=True)
    for partition in ("", token):
        assert (await part(sketch, partition, NOW_MS + 4_999)).bitarray.all()
    assert sketch.epoch == ""


async def test_an_epoch_s_own_partitions_name_exactly_the_writes() -> None:
    """From their first copy on, partitions of the epoch name exactly the writes.

    The union, an earlier epoch's partitions and unknown partitions name everything. A write to a name of theirs counts
    as one to a kept copy. A loss in the same process remains a loss of everything.
    """
    epoch, earlier = "0123456789abcdef", "fedcba9876543210"
    sketch, group = MemoryCacheSketch(epoch=epoch), epoch + token_of("a")
    await sketch.saturate(NOW_MS + 5_000, earlier=True)
    names = [in_partition("/1", epoch), in_partition("/2", group)]
    for name in names:
        await sketch.report_read(name, expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS)
    assert (await sketch.state(now_ms=NOW_MS)).partitions == {epoch, group}
    assert not any([(await part(sketch, token, NOW_MS)).bitarray.any() for token in (epoch, group)])
    written = [*names, in_partition("/1", earlier)]
    assert await sketch.report_write(written, now_ms=NOW_MS) == [9_000, 9_000, 5_000]
    own, grouped = await part(sketch, epoch, NOW_MS), await part(sketch, group, NOW_MS)
    assert ("/1" in own, "/2" in own, "/1" in grouped, "/2" in grouped) == (True, False, False, True)
    for token in ("", earlier, earlier + token_of("a"), token_of("a")):
        assert (await part(sketch, token, NOW_MS + 4_999)).bitarray.all()
        assert len(await part(sketch, token, NOW_MS + 5_000)) == 2
    await sketch.saturate(NOW_MS + 4_000)
    assert (await part(sketch, epoch, NOW_MS + 3_999)).bitarray.all()
    assert len(await part(sketch, epoch, NOW_MS + 4_000)) == 1


async def test_the_kill_switch_is_remembered_and_changes_nothing_else(make: MakeSketch) -> None:
    sketch = make()
    assert not (await sketch.state(now_ms=NOW_MS)).off
    for off in (True, True, False):
        await sketch.switch(off=off)
        assert (await sketch.state(now_ms=NOW_MS)).off is off
        assert not (await stale(sketch, NOW_MS)).bitarray.any()
