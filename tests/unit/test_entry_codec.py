"""The wire format of stored responses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.clock import End
from quaestor.model import CachedResponse
from quaestor.store import entry_codec

GOLDEN = CachedResponse(
    key="http://a/ü",
    status=404,
    headers=((b"content-type", b"text/plain"), (b"link", b"<1>"), (b"link", b"")),
    body=b"none\x00",
    etag=b'W/"e"',
    stored_at_ms=1_700_000_000_000,
    fresh_until_ms=1_700_000_060_000,
    stale_until_ms=1_700_000_090_000,
    registrations=("o:1", "o:2"),
    tags=("q1",),
    resource="/",
    cost_ms=513,
    copies_until_ms=1_700_000_030_000,
    partition="0a1b2c3d",
    ends=End.PROBATION,
)
GOLDEN_BYTES = (
    b"QE\x08" b"\xae\xba\xd5\xa0\x13\x2f\x80\xb9" b"\x01\x94\x00\x00\x01\x8b\xcf\xe5h\x00\x00\x00\x01\x8b\xcf\xe6R`"
    b"\x00\x00\x01\x8b\xcf\xe6\xc7\x90\x00\x00\x02\x01\x00\x00\x01\x8b\xcf\xe5\xdd\x30\x01"
    b"\x00\x00\x00\x0bhttp://a/\xc3\xbc\x00\x00\x00\x01/\x00\x00\x00\x080a1b2c3d\x00\x00\x00\x05W/\"e\""
    b"\x00\x02\x00\x00\x00\x03o:1\x00\x00\x00\x03o:2\x00\x01\x00\x00\x00\x02q1"
    b"\x00\x03\x00\x00\x00\x0ccontent-type\x00\x00\x00\ntext/plain\x00\x00\x00\x04link\x00\x00\x00\x03<1>"
    b"\x00\x00\x00\x04link\x00\x00\x00\x00none\x00"
)  # fmt: skip


def test_the_format_is_what_it_was() -> None:
    assert entry_codec.encode(GOLDEN) == GOLDEN_BYTES
    assert entry_codec.decode(GOLDEN_BYTES) == GOLDEN


def test_another_version_or_half_an_entry_is_no_entry() -> None:
    for version in {*range(256)} - {8}:
        assert entry_codec.decode(GOLDEN_BYTES[:2] + bytes([version]) + GOLDEN_BYTES[3:]) is None
    body_at = GOLDEN_BYTES.rindex(b"none\x00")
    for end in range(body_at):
        assert entry_codec.decode(GOLDEN_BYTES[:end]) is None


@given(st.binary(max_size=80))
def test_garbage_is_no_entry(data: bytes) -> None:
    entry_codec.decode(data)
    decoded = entry_codec.decode(GOLDEN_BYTES[:20] + data)
    assert decoded is None or decoded.status == 404


@pytest.mark.parametrize(
    "crafted",
    [
        replace(GOLDEN, status=99),
        replace(GOLDEN, status=101),
        replace(GOLDEN, status=65_535),
        replace(GOLDEN, headers=((b"x", b"1\r\nset-cookie: session=mine"),)),
        replace(GOLDEN, headers=((b"x", b"1\n"),)),
        replace(GOLDEN, headers=((b"x\r\ny", b"1"),)),
        replace(GOLDEN, headers=((b"", b"1"),)),
        replace(GOLDEN, headers=((b"x: y", b"1"),)),
        replace(GOLDEN, etag=b'"e"\r\n\r\n<script>'),
        replace(GOLDEN, partition="0a1b2c3d\r\n"),
        replace(GOLDEN, partition=";private"),
    ],
)
def test_an_entry_that_no_handler_can_have_answered_is_none(crafted: CachedResponse) -> None:
    """A writer to the server can make up answers, but not answers within answers, nor ones on which servers stumble."""
    assert entry_codec.decode(entry_codec.encode(crafted)) is None


_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_value = st.binary(max_size=9).filter(lambda value: not set(value) & set(b"\r\n\0"))


@given(
    st.builds(
        CachedResponse,
        key=_text,
        status=st.integers(200, 599),
        headers=st.lists(st.tuples(st.sampled_from([b"link", b"x-a", b"etag"]), _value), max_size=4).map(tuple),
        body=st.binary(max_size=99),
        etag=_value,
        stored_at_ms=st.integers(0, 2**63),
        fresh_until_ms=st.integers(0, 2**63),
        registrations=st.lists(_text, max_size=3).map(tuple),
        tags=st.lists(_text, max_size=3).map(tuple),
        resource=_text,
    )
)
def test_every_response_survives_the_round_trip(response: CachedResponse) -> None:
    assert entry_codec.decode(entry_codec.encode(response)) == response
