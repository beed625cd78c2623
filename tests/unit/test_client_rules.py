"""The rules of the Python client, without sockets and clocks: fields, the server's time, what a sketch has to be."""

from __future__ import annotations

import math

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.sizing import DEFAULT, Geometry
from quaestor.cache_sketch.wire_format import digest, encode, positions, saturated
from quaestor.client.copies import Copies, Copy, Form, Identity
from quaestor.client.exchange import Exchanges
from quaestor.client.fields import Lifetime, lifetime, sketch_field
from quaestor.client.flat_sketch import FlatSketch
from quaestor.client.levels import Level
from quaestor.client.server_time import Moment, ServerTime
from quaestor.client.sketches import Sketches, SketchRequest
from quaestor.client.steps import Answer, Ask

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("60;at=5", Lifetime(5, 60_005)),
        ("60;at=5;sketch=items", Lifetime(5, 60_005, "items")),
        ("60;at=5;private", Lifetime(5, 60_005, "", True)),
        ("60;at=5;sketch=items;private", Lifetime(5, 60_005, "items", True)),
        *((malformed, None) for malformed in ("", "60", "60;at=", "-1;at=5", "60; at=5", "60;at=5;x", "60;at=5;sketch=../x",
                                              "60;at=5;sketch=..", "60;at=5;sketch=.", "60;at=5, 60;at=5", "999999999;at=5",
                                              "6e1;at=5", "60;at=5;private;sketch=x")),
    ],
)  # fmt: skip
def test_a_lifetime_is_read_whole_or_allows_no_copy(field: str, expected: Lifetime | None) -> None:
    """A lifetime that is malformed, even in part, gives no permission to keep a copy."""
    assert lifetime(httpx.Headers({"quaestor-ttl": field})) == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("made=5, delta=60", (5, 60.0, 0, False)),
        ("nonce=7, off, made=5", (5, None, 7, True)),
        ("made=5, delta=1.5, off=?0", (5, 1.5, 0, False)),
        ("made=5, delta=-1, nonce=x", (5, None, 0, False)),
        *((malformed, None) for malformed in ("", "made", "made=0", "made=-5", "made=5.0", "delta=60", "made=5;", "<html>")),
    ],
)  # fmt: skip
def test_fields_of_sketches_are_read_in_any_order(field: str, expected: tuple[object, ...] | None) -> None:
    """The order is free; without the time of its making a sketch is worth nothing."""
    parsed = sketch_field(httpx.Headers({"quaestor-sketch": field}))
    assert (parsed and (parsed.made_ms, parsed.delta_s, parsed.nonce, parsed.off)) == expected


steps = st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))


@given(st.lists(steps, max_size=10))
def test_the_server_s_time_is_never_thought_earlier_than_it_is(passed: list[tuple[float, float, float]]) -> None:
    """The estimate holds for any steps of the wall clock and the monotonic clock; old answers do not make it earlier."""
    time = ServerTime()
    server_ms, now = float(NOW), Moment(5.0, 5.0)
    time.prove(server_ms, time.elapsed_ms(now))
    for wall_ms, gone_ms, old_ms in passed:
        server_ms += gone_ms
        now = Moment(now.wall_ms + wall_ms, now.monotonic_ms + gone_ms)
        assert time.latest_ms(now) >= server_ms - 1e-3
        time.learn(server_ms - old_ms, time.elapsed_ms(now))
        assert time.latest_ms(now) >= server_ms - 1e-3


@given(st.binary(max_size=120))
def test_bytes_of_any_kind_are_read_or_refused(body: bytes) -> None:
    FlatSketch.read(body)


def test_bytes_that_are_no_sketch_are_refused() -> None:
    """The same bodies that the browser's client refuses."""
    whole = saturated(DEFAULT)
    refused = [
        b"", whole[:39], whole[:40], whole[:-1], whole + b"\0", b"<!doctype html>" + b"x" * (len(whole) - 15),
        *(whole[:8] + n.to_bytes(8, "little") + whole[16:] for n in (0, 9, 2**32 + 4)),
        *(whole[:16] + n.to_bytes(8, "little") + whole[24:] for n in (0, 2**40)),
    ]  # fmt: skip
    assert [FlatSketch.read(body) for body in refused] == [None] * len(refused)
    read = FlatSketch.read(whole)
    assert read is not None
    assert "/anything" in read


@given(st.sets(st.text(min_size=1, max_size=20), max_size=40), st.text(min_size=1, max_size=20))
def test_added_keys_are_found(names: set[str], other: str) -> None:
    """No false negative, and the same false positives as the server's own filter."""
    geometry = Geometry(slices=4, bits_per_slice=64, capacity=10, error_rate=0.1)
    filled = CountingFilter(geometry)
    for name in names:
        filled.add(digest(name))
    flat = FlatSketch.read(encode(geometry, keys=filled.keys, bits=filled.bits))
    assert flat is not None
    assert all(name in flat for name in names)
    there = all(filled.bits[place >> 3] >> (place & 7) & 1 for place in positions(digest(other), geometry))
    assert (other in flat) == there


def answered(
    sketches: Sketches, request: SketchRequest, said: str, *, body: bytes = b"", status: int = 200
) -> bool | None:
    headers = httpx.Headers({"quaestor-sketch": said})
    return sketches.answered(
        request, status, headers, body or saturated(DEFAULT), Moment(0.0, 0.0), delta_ms=60_000, written_ms=0
    )


def test_only_proof_tells_the_time_first() -> None:
    """The first load carries a number, and an answer that does not repeat it is refused: an old one, played again."""
    sketches, start = Sketches(), Moment(0.0, 0.0)
    first = sketches.ask("", nonce=7, now=start)
    assert first.nonce == 7
    assert answered(sketches, first, f"made={NOW}") is False
    assert answered(sketches, first, f"made={NOW}, nonce=8") is False
    assert not sketches.time.known
    assert answered(sketches, first, f"made={NOW}, nonce=7")
    assert sketches.ask("", nonce=9, now=start).nonce == 0


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [
        (f"made={NOW - 61_000}", 200, b""), (f"made={NOW + 61_000}", 200, b""), ("", 200, b""),
        (f"made={NOW}", 503, b""), (f"made={NOW}", 200, b"<html>"), (f"delta={NOW}", 200, b""),
    ],
    ids=["old", "from the future", "no field", "an error", "html", "no time"],
)  # fmt: skip
def test_a_doubtful_answer_is_fetched_again_with_proof(said: str, status: int, body: bytes) -> None:
    sketches, start = Sketches(), Moment(0.0, 0.0)
    assert answered(sketches, sketches.ask("", nonce=7, now=start), f"made={NOW}, nonce=7")
    assert answered(sketches, sketches.ask("", nonce=8, now=start), said, status=status, body=body) is None
    assert sketches.made_ms("") == NOW


def test_an_overtaken_version_is_not_kept() -> None:
    """Its body came after that of a newer one."""
    copies = Copies(100_000)
    key: Identity = (b"/a", ())

    def copy(etag: str, at_ms: int) -> Copy:
        return Copy(identity=key, name=b"", life=Lifetime(at_ms, at_ms + 1000), etag=etag, headers=(), body=b"")

    copies.saw(key, Form((), ""), 1, "old")
    copies.saw(key, Form((), ""), 2, "new")
    copies.keep(copy("old", 1))
    assert copies.find(b"/a", {}) is None
    copies.keep(copy("new", 2))
    assert copies.find(b"/a", {}) is not None
    assert copies.older(key, 1, "old")
    copies.drop(key)
    assert (copies.bytes, len(copies)) == (0, 0)


def loaded(sketches: Sketches, partition: str, made_ms: int, body: bytes = b"") -> None:
    request = sketches.ask(partition, nonce=7, now=Moment(0.0, 0.0), proof=True)
    assert answered(sketches, request, f"made={made_ms}, nonce=7", body=body)


def test_a_304_confirms_what_was_asked_with() -> None:
    """Two loads at a time: the newer sketch is not given the time of the older one's confirmation."""
    sketches, start = Sketches(), Moment(0.0, 0.0)
    empty = encode(DEFAULT, keys=0, bits=bytes(DEFAULT.size_bytes))

    def take(request: SketchRequest, status: int, etag: str, made_ms: int, body: bytes) -> bool | None:
        headers = httpx.Headers({"quaestor-sketch": f"made={made_ms}, nonce=7", "etag": etag})
        return sketches.answered(request, status, headers, body, start, delta_ms=60_000, written_ms=0)

    assert take(sketches.ask("", nonce=7, now=start, proof=True), 200, '"empty"', NOW, empty)
    first = sketches.ask("", nonce=7, now=start, proof=True)
    second = sketches.ask("", nonce=7, now=start, proof=True)
    assert take(first, 200, '"full"', NOW + 2, saturated(DEFAULT))
    assert take(second, 304, '"full"', NOW + 3, b"") is False
    assert not sketches.vouches("", digest("/a"), NOW, NOW + 2)
    assert take(second, 304, 'W/"empty"', NOW + 3, b"")
    assert sketches.vouches("", digest("/a"), NOW, NOW + 3)


def test_the_whole_tells_of_every_partition() -> None:
    """Where a partition has no sketch that is new enough; where it has, its own decides, which has fewer entries."""
    sketches = Sketches()
    empty = encode(DEFAULT, keys=0, bits=bytes(DEFAULT.size_bytes))
    loaded(sketches, "", NOW, empty)
    assert sketches.vouches("items", digest("/a"), NOW, NOW)
    loaded(sketches, "items", NOW + 5)
    assert not sketches.vouches("items", digest("/a"), NOW, NOW + 5)
    loaded(sketches, "", NOW + 9)
    loaded(sketches, "items", NOW + 9, empty)
    assert sketches.vouches("items", digest("/a"), NOW, NOW + 9)
    assert not sketches.vouches("others", digest("/a"), NOW, NOW + 9)


def test_a_load_that_was_lost_is_made_again() -> None:
    """With its event loop, or its process' threads: some time after, and not beside it."""
    sketches = Sketches()
    assert sketches.due("", 1.0, Moment(0.0, 0.0)) == [""]
    assert sketches.due("", 1.0, Moment(5_000.0, 5_000.0)) == []
    assert sketches.due("", 1.0, Moment(31_000.0, 31_000.0)) == [""]


def test_kept_partitions_are_bounded() -> None:
    """At most 64 partitions are kept for any names in answers; beyond that the client loads the whole sketch,
    which covers all.
    """
    sketches, start = Sketches(), Moment(0.0, 0.0)
    wanted = [name for number in range(200) for name in sketches.due(f"p{number}", 1.0, start)]
    assert wanted == [*(f"p{number}" for number in range(64)), ""]


def test_versions_that_were_forgotten_are_not_gone_back_to() -> None:
    """More URLs than are remembered: an answer older than what was forgotten is asked for again."""
    copies = Copies(0)
    for number in range(10_001):
        copies.saw((b"/%d" % number, ()), Form((), ""), 1_000 + number, "new")
    assert copies.older((b"/0", ()), 999, "old")
    assert not copies.older((b"/0", ()), 1_000, "old")
    assert copies.older((b"/1", ()), 1_000, "old")


def test_an_undated_answer_is_never_followed_by_an_older_one() -> None:
    """Answers that left earlier may be older: they are neither used nor kept until a later one comes.

    That holds before the answer's time is known, too.
    """
    copies = Copies(100_000)
    key: Identity = (b"/a", ())
    copies.saw(key, Form((), ""), 1_000, "a")
    copies.saw_undated(b"/a", {}, 2_000)
    assert copies.older(key, 1_999, "a")
    assert not copies.older((b"/b", ()), 1, "a")
    copy = Copy(identity=key, name=b"", life=Lifetime(1_999, 9_000), etag="a", headers=(), body=b"")
    copies.keep(copy)
    assert copies.find(b"/a", {}) is None
    copies.saw(key, Form((), ""), 2_000, "b")
    assert not copies.older(key, 2_000, "b")
    copies.saw_undated(b"/a", {}, math.inf)
    assert copies.older(key, 3_000, "b")
    copies.date(2_500)
    assert copies.older(key, 2_499, "c")
    assert not copies.older(key, 2_500, "c")


def test_a_proof_that_was_overtaken_is_no_clock_set_back() -> None:
    """Answers that left later than the sketch arrived before it; nothing is dropped for that."""
    sketches, start = Sketches(), Moment(0.0, 0.0)
    loaded(sketches, "items", NOW)
    request = sketches.ask("", nonce=7, now=start, proof=True)
    sketches.newest_ms = NOW + 60_000
    assert answered(sketches, request, f"made={NOW + 1}, nonce=7")
    assert sketches.newest_ms == NOW + 60_000
    assert sketches.made_ms("items") == NOW + 1


def test_when_the_server_s_clock_was_set_back_nothing_is_relied_on() -> None:
    """Copies and sketches that count by the time before are dropped, also those of other partitions; then it goes on."""
    exchanges, start = Exchanges(Level(delta_s=60), 100_000), Moment(0.0, 0.0)
    empty = encode(DEFAULT, keys=0, bits=bytes(DEFAULT.size_bytes))

    def load(made_ms: int) -> None:
        for partition in ("", "items"):
            request = exchanges.ask_sketch(partition, nonce=7, now=start, proof=True)
            headers = httpx.Headers({"quaestor-sketch": f"made={made_ms}, nonce=7"})
            assert exchanges.sketch_answered(request, 200, headers, empty, start)

    def read(at_ms: int) -> str:
        step = exchanges.begin(b"/a", {}, Level(delta_s=60), start)
        if isinstance(step, Ask):
            headers = httpx.Headers({"quaestor-ttl": f"600;at={at_ms};sketch=items", "etag": '"1"'})
            step = exchanges.answered(step, 200, headers, headers.raw, start)
            assert isinstance(step, Answer)
            if step.keep is not None:
                exchanges.keep(step.keep, headers.raw, b"")
        assert step is not None
        return step.source

    load(NOW)
    assert [read(NOW + 1), read(NOW + 1)] == ["server", "memory"]
    request = exchanges.ask_sketch("", nonce=7, now=start, proof=True)
    headers = httpx.Headers({"quaestor-sketch": f"made={NOW - 30_000}, nonce=7"})
    assert exchanges.sketch_answered(request, 200, headers, empty, start)
    assert exchanges.sketches.made_ms("items") == NOW - 30_000
    assert [read(NOW - 29_000), read(NOW - 29_000)] == ["server", "server"]
    load(NOW - 27_000)
    assert read(NOW - 29_000) == "memory"


@pytest.mark.parametrize(("later_ms", "again"), [(-1, True), (99, True), (100, False), (900, False)])
def test_of_two_versions_only_one_that_may_be_the_older_is_asked_for_again(later_ms: int, again: bool) -> None:
    """An answer may have left 100 ms later than it says: what left later than that is the newer one, asked for once."""
    exchanges, start = Exchanges(Level(), 100_000), Moment(0.0, 0.0)

    def answered(step: object, at_ms: int, etag: str) -> Ask | Answer:
        assert isinstance(step, Ask)
        headers = httpx.Headers({"quaestor-ttl": f"600;at={at_ms}", "etag": etag})
        return exchanges.answered(step, 200, headers, [], start)

    first = answered(exchanges.begin(b"/a", {}, Level(), start), NOW, '"1"')
    assert isinstance(first, Answer)
    assert first.keep is not None
    exchanges.keep(first.keep, [], b"x")
    second = answered(exchanges.begin(b"/a", {}, Level(), start), NOW + later_ms, '"2"')
    assert isinstance(second, Ask) is again
    assert exchanges.counts.again == again
