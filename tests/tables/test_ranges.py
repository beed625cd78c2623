"""Byte ranges: RFC 9110, sections 13.1.5 and 14, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.read_path.ranges import MAX_RANGES, Span, content_range, if_range_holds, multipart, spans


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("bytes=0-1", [(0, 1)]),
        ("bytes=0-0", [(0, 0)]),
        ("bytes=1-", [(1, 9)]),
        ("bytes=-3", [(7, 9)]),
        ("bytes=-99", [(0, 9)]),
        ("bytes=5-99", [(5, 9)]),
        ("BYTES = 2-3", [(2, 3)]),
        ("bytes=0-1,4-5", [(0, 1), (4, 5)]),
        ("bytes=8-9, 0-1", [(8, 9), (0, 1)]),
        ("bytes=0-1,,4-5,", [(0, 1), (4, 5)]),
        ("bytes=0-1,20-30", [(0, 1)]),
        ("bytes=0-3,2-5", [(0, 5)]),
        ("bytes=0-1,2-3", [(0, 3)]),
        ("bytes=0-1,4-5,2-3", [(0, 5)]),
        ("bytes=10-", []),
        ("bytes=99-100", []),
        ("bytes=-0", []),
        ("bytes=3-2", None),
        ("bytes=-", None),
        ("bytes=", None),
        ("bytes=a-b", None),
        ("bytes=1", None),
        ("bytes=+1-2", None),
        ("bytes 0-1", None),
        ("items=0-1", None),
        ("", None),
        ("bytes=0-9,0-9", None),
        ("bytes=" + ",".join(f"{n}-{n}" for n in range(MAX_RANGES + 1)), None),
        ("bytes=" + "0" * 600 + "-1", None),
        ("bytes=0-" + "9" * 19, None),
    ],
)
def test_a_range_field_selects_of_ten_bytes(field: str, expected: list[tuple[int, int]] | None) -> None:
    ranges = spans(field.encode(), 10)
    assert ranges == (None if expected is None else tuple(Span(*pair) for pair in expected))


def test_without_a_range_field_or_with_an_empty_body() -> None:
    assert spans(None, 10) is None
    assert spans(b"bytes=0-", 0) == ()
    assert spans(b"bytes=-5", 0) == ()


DAY = b"Tue, 14 Nov 2023 22:13:20 GMT"
LATER = b"Tue, 14 Nov 2023 22:13:21 GMT"


@pytest.mark.parametrize(
    ("field", "etag", "headers", "holds"),
    [
        (None, b'"a"', [], True),
        (b'"a"', b'"a"', [], True),
        (b' "a" ', b'"a"', [], True),
        (b'"b"', b'"a"', [], False),
        (b'W/"a"', b'W/"a"', [], False),
        (b'W/"a"', b'"a"', [], False),
        (b'"a"', b'W/"a"', [], False),
        (b'"a", "b"', b'"a"', [], False),
        (b"a", b"a", [], False),
        (DAY, b'"a"', [(b"last-modified", DAY), (b"date", LATER)], True),
        (DAY, b'"a"', [(b"last-modified", DAY), (b"date", DAY)], False),
        (DAY, b'"a"', [(b"last-modified", DAY)], True),
        (LATER, b'"a"', [(b"last-modified", DAY), (b"date", LATER)], False),
        (DAY, b'"a"', [], False),
        (b"yesterday", b'"a"', [(b"last-modified", b"yesterday")], False),
    ],
)
def test_if_range_needs_the_same_answer_for_certain(
    field: bytes | None, etag: bytes, headers: list[tuple[bytes, bytes]], holds: bool
) -> None:
    assert if_range_holds(field, headers, etag, stored_at_s=1_800_000_000.0) is holds


def test_several_ranges_are_parts_with_their_place_and_type() -> None:
    body = multipart(b"0123456789", [Span(0, 1), Span(8, 9)], content_type=b"text/plain", boundary=b"B")
    assert body == (
        b"--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n01\r\n"
        b"--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 8-9/10\r\n\r\n89\r\n--B--\r\n"
    )
    assert b"Content-Type" not in multipart(b"x", [Span(0, 0)], content_type=None, boundary=b"B")


@given(st.binary(max_size=60), st.integers(0, 30))
def test_sent_ranges_lie_inside_and_are_no_more_than_the_whole(data: bytes, size: int) -> None:
    for field in (data, b"bytes=" + data):
        ranges = spans(field, size)
        if ranges is not None:
            assert all(0 <= span.first <= span.last < size for span in ranges)
            assert sum(span.size for span in ranges) <= size
            assert len(ranges) <= MAX_RANGES
            assert all(content_range(span, size).startswith(b"bytes ") for span in ranges)
