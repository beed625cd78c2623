"""The Cache Sketch's parts without I/O: sizes, the wire format against the real pybloom_live, counting, deadlines."""

from __future__ import annotations

import hashlib
import io
import math
import random

import pybloom_live
import pytest
import xxhash

from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.deadlines import Deadlines
from quaestor.cache_sketch.limits import Limits
from quaestor.cache_sketch.sizing import (
    BODY_BYTES,
    DEFAULT,
    HEADER_BYTES,
    Geometry,
    false_positive_rate,
    optimal_hashes,
    optimal_size_bits,
)
from quaestor.errors import ConfigurationError

KEYS = ["/departures/JFK", "/departures/LGA?dest=SEA&limit=20", "", "/é/北京", "/" + "x" * 100_000]


def loaded(body: bytes) -> pybloom_live.BloomFilter:
    return pybloom_live.BloomFilter.fromfile(io.BytesIO(body))


def test_the_default_body_is_exactly_one_initial_congestion_window() -> None:
    body = wire_format.encode(DEFAULT, keys=0, bits=bytes(DEFAULT.size_bytes))
    assert len(body) == HEADER_BYTES + DEFAULT.size_bytes == BODY_BYTES == 10 * 1460


def test_the_default_geometry_makes_pybloom_use_xxh128() -> None:
    """pybloom_live chooses its hash by k times the chunk size; another one would make every look-up wrong."""
    body = loaded(wire_format.encode(DEFAULT, keys=0, bits=bytes(DEFAULT.size_bytes)))
    assert body.hashfn is xxhash.xxh128
    assert (body.num_slices, body.bits_per_slice, body.capacity) == (4, 29_120, 20_000)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:20])
def test_positions_are_those_of_pybloom(key: str) -> None:
    theirs = loaded(wire_format.encode(DEFAULT, keys=0, bits=bytes(DEFAULT.size_bytes)))
    width = DEFAULT.bits_per_slice
    expected = tuple(i * width + position for i, position in enumerate(theirs.make_hashes(key)))
    assert wire_format.positions(wire_format.digest(key), DEFAULT) == expected


def test_golden_digest_and_positions() -> None:
    """Fixed for ever: clients in other languages compute the same."""
    assert wire_format.SALT.hex() == "2a33816ed7e0c373dbe563c737220b65"
    assert wire_format.digest("/departures/JFK").hex() == "cd410154f41c27eb342aa87c7ffdb327"
    assert wire_format.positions(wire_format.digest("/departures/JFK"), DEFAULT) == (16845, 50625, 65652, 89319)


def test_the_body_is_fixed_for_ever() -> None:
    """Fixed for ever: three keys, every byte of the body."""
    ours = CountingFilter(DEFAULT)
    for key in KEYS[:3]:
        ours.add(wire_format.digest(key))
    body = wire_format.encode(DEFAULT, keys=ours.keys, bits=ours.bits)
    assert (
        body[:HEADER_BYTES].hex() == "a4703d0ad7a3b03f0400000000000000c071000000000000204e0000000000000300000000000000"
    )
    assert hashlib.sha256(body).hexdigest() == "24f68056c0e125feb785d04b7aab146ab791d9f2c5ac48ba6a84d0a2811dd3c6"


def test_our_bytes_are_those_that_pybloom_writes() -> None:
    """The same keys added by pybloom_live to an empty filter of ours give the same file."""
    ours = CountingFilter(DEFAULT)
    theirs = loaded(wire_format.encode(DEFAULT, keys=0, bits=ours.bits))
    for key in KEYS:
        ours.add(wire_format.digest(key))
        theirs.add(key, skip_check=True)
    written = io.BytesIO()
    theirs.tofile(written)
    assert wire_format.encode(DEFAULT, keys=ours.keys, bits=ours.bits) == written.getvalue()


def test_a_saturated_body_contains_everything() -> None:
    everything = loaded(wire_format.saturated(DEFAULT))
    assert all(key in everything for key in KEYS)
    assert len(wire_format.saturated(DEFAULT)) == BODY_BYTES


def test_every_shape_that_is_allowed_agrees_with_pybloom() -> None:
    """Other geometries may be chosen, as long as pybloom_live would cut xxh128 into 16-bit numbers for them too."""
    for slices in range(1, 9):
        geometry = Geometry(slices=slices, bits_per_slice=1_016, capacity=100, error_rate=0.1)
        ours = CountingFilter(geometry)
        for key in KEYS:
            ours.add(wire_format.digest(key))
        theirs = loaded(wire_format.encode(geometry, keys=5, bits=ours.bits))
        assert theirs.hashfn is xxhash.xxh128
        assert all(key in theirs for key in KEYS)


@pytest.mark.parametrize(("slices", "bits_per_slice"), [(0, 800), (9, 800), (4, 1 << 15), (4, 0), (3, 1_001)], ids=str)
def test_a_shape_that_pybloom_would_read_differently_is_refused(slices: int, bits_per_slice: int) -> None:
    with pytest.raises(ConfigurationError):
        Geometry(slices=slices, bits_per_slice=bits_per_slice, capacity=1, error_rate=0.1)


def test_sizes_follow_the_formulas_of_the_papers() -> None:
    """The figures of the papers: 14,600 bytes and four hashes hold 20,000 entries at 6 %, 10,000 below 1 %."""
    assert false_positive_rate(20_000, 14_600 * 8, 4) == pytest.approx(0.060, abs=0.001)
    assert false_positive_rate(10_000, 14_600 * 8, 4) < 0.01
    assert optimal_size_bits(20_000, 0.0600) == pytest.approx(14_600 * 8, rel=0.01)
    assert optimal_hashes(14_600 * 8, 20_000) == 4
    assert false_positive_rate(0, 100, 4) == 0


@pytest.mark.parametrize("entries", [1_000, 10_000, 20_000])
def test_the_best_number_of_hashes_is_at_least_as_good_as_its_neighbours(entries: int) -> None:
    size_bits = DEFAULT.size_bits
    best = optimal_hashes(size_bits, entries)
    rates = {k: false_positive_rate(entries, size_bits, k) for k in (max(1, best - 1), best, best + 1)}
    assert min(rates.values()) >= 0.97 * rates[best]


@pytest.mark.parametrize("entries", [10_000, 20_000])
def test_measured_false_positives_agree_with_theory(entries: int) -> None:
    """Within five standard deviations of the expectation, asked of the real pybloom_live; bias of the modulo included."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")
    dice = random.Random(seed)
    ours = CountingFilter(DEFAULT)
    for i in range(entries):
        ours.add(wire_format.digest(f"/in/{i}/{dice.random()}"))
    theirs = loaded(wire_format.encode(DEFAULT, keys=entries, bits=ours.bits))
    lookups = 20_000
    hits = sum(f"/out/{i}/{dice.random()}" in theirs for i in range(lookups))
    expected = DEFAULT.false_positive_rate(entries)
    deviation = math.sqrt(expected * (1 - expected) / lookups)
    fill = 0.02 * expected  # the share of bits set varies a little too
    assert abs(hits / lookups - expected) < 5 * deviation + fill
    assert expected == pytest.approx(false_positive_rate(entries, DEFAULT.size_bits, 4), rel=0.15)


def test_the_header_tells_the_rate_at_capacity() -> None:
    assert pytest.approx(DEFAULT.false_positive_rate(DEFAULT.capacity), abs=0.0005) == DEFAULT.error_rate


def test_removing_every_key_leaves_no_bit() -> None:
    ours = CountingFilter(DEFAULT)
    digests = [wire_format.digest(str(i)) for i in range(3_000)]
    for key in digests:
        ours.add(key)
    random.Random(1).shuffle(digests)
    for key in digests:
        ours.remove(key)
    assert not any(ours.bits)
    assert ours.keys == 0


def test_removing_a_key_leaves_the_others() -> None:
    """Two keys that share positions: the counter keeps the bit of the one that stays."""
    geometry = Geometry(slices=2, bits_per_slice=8, capacity=2, error_rate=0.5)
    ours = CountingFilter(geometry)
    digests = [wire_format.digest(str(i)) for i in range(64)]
    for key in digests:
        ours.add(key)
    for gone, key in enumerate(digests):
        ours.remove(key)
        assert all(other in ours for other in digests[gone + 1 :])


def test_counters_above_a_byte_lose_no_key() -> None:
    """2,000 keys in 16 positions: each counter has a rest beyond its byte, and every key that stays is found."""
    ours = CountingFilter(Geometry(slices=2, bits_per_slice=8, capacity=2, error_rate=0.5))
    digests = [wire_format.digest(str(i)) for i in range(2_000)]
    for key in digests:
        ours.add(key)
    random.Random(2).shuffle(digests)
    for gone, key in enumerate(digests):
        ours.remove(key)
        assert all(other in ours for other in digests[gone + 1 :][:50])
    assert not any(ours.bits)
    with pytest.raises(ValueError, match="not added"):
        ours.remove(digests[0])


def test_a_key_that_cannot_be_in_is_not_removed() -> None:
    """Counters never become negative, and a refused removal changes nothing."""
    ours = CountingFilter(DEFAULT)
    ours.add(wire_format.digest("in"))
    before = bytes(ours.bits)
    with pytest.raises(ValueError, match="not added"):
        ours.remove(wire_format.digest("out"))
    assert ours.bits == before
    assert ours.keys == 1


def test_deadlines_grow_and_never_shrink() -> None:
    deadlines = Deadlines()
    assert deadlines.extend(b"a", 100)
    assert not deadlines.extend(b"a", 50)
    assert deadlines.get(b"a") == 100
    assert not deadlines.extend(b"a", 200)
    assert deadlines.pop_due(199, limit=10) == []
    assert deadlines.pop_due(200, limit=10) == [b"a"]
    assert len(deadlines) == 0


def test_deadlines_are_worked_off_in_bounded_steps() -> None:
    deadlines = Deadlines()
    for i in range(10):
        deadlines.extend(str(i).encode(), i)
    assert deadlines.pop_due(9, limit=4) == [b"0", b"1", b"2", b"3"]
    assert deadlines.any_due(9)
    assert len(deadlines.pop_due(9, limit=100)) == 6
    assert not deadlines.any_due(9)


def test_a_key_that_is_extended_for_ever_takes_one_queue_entry() -> None:
    """Memory follows the number of keys, not the number of reports."""
    deadlines = Deadlines()
    for at_ms in range(10_000):
        deadlines.extend(b"hot", at_ms)
        deadlines.extend(b"other", at_ms % 7)
    assert len(deadlines._queue) == 2


@pytest.mark.parametrize("values", [{"max_reads": -1}, {"max_stale": 2**32}, {"sweep": 1}, {"snapshot_sweep": 6_000}])
def test_limits_out_of_range_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        Limits(**values)
