"""Bytes of a source become records: however they are cut into parts, and within bounds."""

from __future__ import annotations

import gzip
import json
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.channels.feeds.records import FeedError, Inflated, Lines, Objects, parsed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=5)


@given(objects=OBJECTS, gap=st.sampled_from(["", " ", "\n", ",\n"]), size=st.integers(1, 9), ascii_only=st.booleans())
def test_objects_that_follow_each_other_are_split_at_their_ends(
    objects: list[object], gap: str, size: int, ascii_only: bool
) -> None:
    """With quotes, braces and backslashes in their texts, and cut anywhere."""
    body = gap.join(json.dumps(value, ensure_ascii=ascii_only) for value in objects).encode(errors="surrogatepass")
    splitter = Objects()
    parts = [data for start in range(0, len(body), size) for data in splitter.feed(body[start : start + size])]
    assert [json.loads(data) for data in parts] == objects
    assert list(splitter.end()) == []


def test_a_rest_that_is_no_object_is_a_record_of_its_own() -> None:
    splitter = Objects()
    assert list(splitter.feed(b'{"a":1}{"b":')) == [b'{"a":1}']
    assert list(splitter.end()) == [b'{"b":']


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and line.strip())),
    size=st.integers(1, 9),
)
def test_lines_are_split_wherever_they_are_cut(lines: list[bytes], size: int) -> None:
    body = b"\n\n".join(lines)
    splitter = Lines()
    parts = [line for start in range(0, len(body), size) for line in splitter.feed(body[start : start + size])]
    assert [*parts, *splitter.end()] == lines


@pytest.mark.parametrize("splitter", [Lines(1_000), Objects(1_000)])
def test_a_record_without_end_is_refused(splitter: Lines | Objects) -> None:
    parts = (b'{"a": "' + b"x" * 100 for _ in range(1_000))
    with pytest.raises(FeedError, match="more than 1000 bytes"):
        deque((list(splitter.feed(part)) for part in parts), maxlen=0)


def test_a_zip_bomb_is_refused_before_it_grows() -> None:
    """A gigabyte of zeros is refused with less than two megabytes expanded."""
    bomb = gzip.compress(bytes(16 << 20))
    expanded: list[int] = []
    with pytest.raises(FeedError, match="more than"):
        expanded.extend(len(part) for part in Inflated(1 << 30).feed(bomb))
    assert sum(expanded) < 4 << 20


@pytest.mark.parametrize(
    "body",
    [b"plain", gzip.compress(b"x")[:-9] + b"123456789", gzip.compress(b"x") + b"more"],
    ids=[
        "not packed",
        "damaged end",
        "bytes behind the end",
    ],  # a packed body holds the time: the workers' ids would differ
)
def test_a_damaged_body_is_refused(body: bytes) -> None:
    with pytest.raises(FeedError):
        list(Inflated(1_000).feed(body))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no UTF-8"),
        (b"5", "no object"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a":' * 100_000, "nested too deep"),
        (b'{"a":"' + b"x" * (1 << 20) + b'"}', "bytes"),
    ],
)
def test_a_record_that_is_no_object_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parsed(data)
