"""The rules of the Python client, without sockets and clocks: fields, the server's time, what a sketch has to be."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.sizing import DEFAULT, Geometry
from quaestor.cache_sketch.wire_format import digest, encode, positions, saturated
from quaestor.client.copies import Copies, Copy, Form, Identity
from quaestor.client.fields import Lifetime, lifetime, sketch_field
from quaestor.client.flat_sketch import FlatSketch
from quaestor.client.server_time import Moment, ServerTime
from quaestor.client.sketches import Sketches, SketchRequest

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("60;at=5", Lifetime(5, 60_005)),
        ("60;at=5;sketch=items", Lifetime(5, 60_005, "items")),
        ("60;at=5;private", Lifetime(5, 60_005, "", True)),
        ("60;at=5;sketch=items;private", Lifetime(5, 60_005, "items", True)),
        *((malformed, None) for malformed in ("", "60", "60;at=", "-1;at=5", "60; at=5", "60;at=5;x", "60;at=5;sketch=../x",
                                              "60;at=5, 60;at=5", "999999999;at=5", "6e1;at=5", "60;at=5;private;sketch=x")),
    ],
)  # fmt: skip
def test_lifetimes(field: str, expected: Lifetime | None) -> None:
    """What is malformed, even in part, gives no leave to keep anything."""
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
def test_fields_of_sketches(field: str, expected: tuple[object, ...] | None) -> None:
    """The order is free; without the time of its making a sketch is worth nothing."""
    found = sketch_field(httpx.Headers({"quaestor-sketch": field}))
    assert (found and (found.made_ms, found.delta_s, found.nonce, found.off)) == expected


steps = st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))


@given(st.lists(steps, max_size=10))
def test_the_server_s_time_is_never_thought_earlier_than_it_is(passed: list[tuple[float, float, float]]) -> None:
    """Whatever the wall clock does while the monotonic one runs, or the other way round; nor do old answers make it earlier."""
    time = ServerTime()
    server_ms, now = float(NOW), Moment(5.0, 5.0)
    time.prove(server_ms, now)
    for wall_ms, gone_ms, old_ms in passed:
        server_ms += gone_ms
        now = Moment(now.wall_ms + wall_ms, now.monotonic_ms + gone_ms)
        assert time.latest_ms(now) >= server_ms - 1e-3
        time.learn(server_ms - old_ms, now)
        assert time.latest_ms(now) >= server_ms - 1e-3


@given(st.binary(max_size=120))
def test_bytes_of_any_kind_are_read_or_refused(body: bytes) -> None:
    FlatSketch.read(body)


def test_what_is_no_sketch_is_refused() -> None:
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
def test_what_was_put_in_is_found(names: set[str], other: str) -> None:
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
        request, status, headers, body or saturated(DEFAULT), request.asked, delta_ms=60_000, written_ms=0
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
def test_what_is_not_believed_is_asked_for_again_with_proof(said: str, status: int, body: bytes) -> None:
    sketches, start = Sketches(), Moment(0.0, 0.0)
    assert answered(sketches, sketches.ask("", nonce=7, now=start), f"made={NOW}, nonce=7")
    assert answered(sketches, sketches.ask("", nonce=8, now=start), said, status=status, body=body) is None
    assert sketches.made_ms("") == NOW


def test_an_overtaken_version_is_not_kept() -> None:
    """Its body came after that of a newer one."""
    copies = Copies(100_000)
    key: Identity = (b"/a", ())

    def copy(etag: str, at_ms: int) -> Copy:
        return Copy(identity=key, life=Lifetime(at_ms, at_ms + 1000), etag=etag, headers=(), body=b"")

    copies.saw(key, Form((), ""), 1, "old")
    copies.saw(key, Form((), ""), 2, "new")
    copies.keep(copy("old", 1))
    assert copies.find(b"/a", {}) is None
    copies.keep(copy("new", 2))
    assert copies.find(b"/a", {}) is not None
    assert copies.older(key, 1, "old")
    copies.forget(b"/a")
    assert (copies.bytes, len(copies)) == (0, 0)
