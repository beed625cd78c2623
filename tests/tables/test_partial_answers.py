"""Which validators are strong (RFC 9110, section 8.8.2.2), what Content-Range says (14.4), what may be answered from a part."""

from __future__ import annotations

import pytest

from quaestor.model import CachedResponse
from quaestor.read_path import partial_answers
from quaestor.read_path.partial_answers import Part
from quaestor.read_path.ranges import Span
from quaestor.read_path.request import inspect

DATE = b"Tue, 14 Nov 2023 22:13:20 GMT"
A_SECOND_BEFORE = b"Tue, 14 Nov 2023 22:13:19 GMT"


@pytest.mark.parametrize(
    ("headers", "strong"),
    [
        ([(b"etag", b'"a"')], b'"a"'),
        ([(b"etag", b'W/"a"')], None),
        ([(b"etag", b"a")], None),
        ([(b"etag", b'"a"'), (b"etag", b'"b"')], None),
        ([(b"last-modified", A_SECOND_BEFORE), (b"date", DATE)], A_SECOND_BEFORE),
        ([(b"last-modified", DATE), (b"date", DATE)], None),
        ([(b"last-modified", A_SECOND_BEFORE)], None),
        ([(b"last-modified", b"yesterday"), (b"date", DATE)], None),
        ([(b"last-modified", A_SECOND_BEFORE), (b"last-modified", A_SECOND_BEFORE), (b"date", DATE)], None),
        ([(b"etag", b'W/"a"'), (b"last-modified", A_SECOND_BEFORE), (b"date", DATE)], None),
        ([], None),
    ],
)
def test_a_validator_is_strong(headers: list[tuple[bytes, bytes]], strong: bytes | None) -> None:
    """Within the second of its Last-Modified there could have been two versions; a weak tag says that there may be."""
    assert partial_answers.strong_validator(headers) == strong


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (b"bytes 0-9/20", Part(Span(0, 9), 20)),
        (b"Bytes 19-19/20", Part(Span(19, 19), 20)),
        (b"bytes 0-20/20", None),
        (b"bytes 9-8/20", None),
        (b"bytes 0-9/*", None),
        (b"bytes */20", None),
        (b"bytes 0-9/0", None),
        (b"bytes  0-9/20", None),
        (b"bytes -1-9/20", None),
        (b"bytes 0-9/20, bytes 10-19/20", None),
        (b"bytes 0-1/9999999999999999", None),
        ("bytes ٠-٩/٢٠".encode(), None),
    ],
)  # fmt: skip
def test_a_content_range_says_where_a_part_lies(said: bytes, part: Part | None) -> None:
    assert partial_answers.located([(b"content-range", said)]) == part


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([b"bytes 0-4/20"], b"0123"),
        ([b"bytes 0-4/20"], b"012345"),
        ([b"bytes 5-9/20", b"bytes 0-4/20"], b"0123456789"),
        ([b"bytes 0-4/20", b"bytes 4-8/20"], b"0123456789"),
        ([b"bytes 0-4/20", b"bytes 5-9/30"], b"0123456789"),
        ([b"bytes 0-4/5", b"bytes 5-9/5"], b"0123456789"),
        ([b"bytes 0-4"], b"01234"),
        ([], b"01234"),
    ],
)
def test_a_damaged_entry_has_no_parts(headers: list[bytes], body: bytes) -> None:
    """Other parts write to the store too, so an entry from it may be damaged."""
    entry = CachedResponse(
        key="k#parts", status=206, headers=tuple((b"content-range", value) for value in headers), body=body, etag=b'"a"',
        stored_at_ms=0, fresh_until_ms=1, registrations=(), tags=(), resource="k",
    )  # fmt: skip
    facts = inspect([(b"range", b"bytes=0-0")])
    assert partial_answers.places(entry) == ((), 0)
    assert partial_answers.selected(entry, facts) is None
    assert partial_answers.beginning(entry) is None


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"range": "bytes=0-9"}, True),
        ({"range": "bytes=0-"}, True),
        ({"range": "BYTES = -5"}, True),
        ({"range": "bytes=0-9", "if-range": '"a"'}, True),
        ({"range": "bytes=0-9,20-"}, False),
        ({"range": "bytes=-"}, False),
        ({"range": "bytes=0-9,"}, False),
        ({"range": "lines=0-9"}, False),
        ({"range": "bytes=" + "9" * 30 + "-"}, False),
        ({"if-range": '"a"'}, False),
        ({"range": "bytes=0-9", "cache-control": "no-store"}, False),
        ({"range": "bytes=0-9", "if-none-match": '"a"'}, False),
        ({"range": "bytes=0-9", "if-modified-since": DATE.decode()}, False),
        ({"range": "bytes=0-9", "if-unmodified-since": DATE.decode()}, False),
        ({"range": "bytes=0-9", "content-length": "3"}, False),
    ],
)
def test_one_range_alone_is_wanted(headers: dict[str, str], wanted: bool) -> None:
    facts = inspect([(name.encode(), value.encode()) for name, value in headers.items()])
    assert partial_answers.wanted(facts) == wanted
    two = inspect([(b"range", b"bytes=0-1"), (b"range", b"bytes=4-5")])
    assert not partial_answers.wanted(two)
