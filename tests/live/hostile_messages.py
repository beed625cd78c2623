"""Frames of hostile clients, for Hypothesis: arbitrary bytes, text and JSON, and messages of the protocol with a few faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from quaestor.live.websocket.problems import ProtocolError
from quaestor.live.websocket.requests import parse_request

Json = dict[str, Any]
BAD_TEXT, TOO_BIG = 1007, 1009
LARGEST = 2_000
"""Bytes of the largest message that the fuzzed site takes."""


class Frame(NamedTuple):
    """WebSocket frame. text: whether it is a text frame, also if its bytes are no UTF-8."""

    data: bytes
    text: bool

    @property
    def close_code(self) -> int | None:
        """Close code that answers the frame (RFC 6455, section 7.4.1); None: the socket stays open."""
        if self.text and not _is_utf8(self.data):
            return BAD_TEXT
        return TOO_BIG if len(self.data) > LARGEST else None

    @property
    def is_malformed(self) -> bool:
        """Whether the parser refuses the message."""
        try:
            parse_request(self.data)
        except ProtocolError:
            return True
        return False


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# Lone surrogates have an escape in JSON, and no UTF-8.
_TEXTS = st.text(st.characters(), max_size=20)
_NUMBERS = st.integers() | st.floats() | st.sampled_from([2**31, 2**63, 2**64, -1, 10**30, 1e308])
_LEAVES = st.none() | st.booleans() | _NUMBERS | _TEXTS
VALUES: SearchStrategy[Any] = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4), max_leaves=10
)
_IDS = st.sampled_from(["a", "b", "c"])
_OPERATORS = st.sampled_from([
    "$eq", "$gt", "$in", "$nin", "$all", "$exists", "$type", "$mod", "$regex", "$options", "$size", "$elemMatch", "$not",
    "$and", "$or", "$nor", "$expr", "$where", "$near", "$geoWithin", "$text", "$oid", "$date", "$numberDecimal",
    "$numberLong", "$binary", "$timestamp", "$minKey", "$ref", "$code", "$uuid", "$regularExpression", "$undefined",
])  # fmt: skip
_STAGES = st.sampled_from([
    "$match", "$sort", "$limit", "$skip", "$project", "$set", "$unset", "$group", "$count", "$unwind", "$lookup", "$facet",
    "$bucket", "$sample", "$out", "$merge", "$unionWith", "$replaceRoot", "$sortByCount", "$densify", "$documents",
])  # fmt: skip
_NAMES = st.sampled_from(["n", "n.m", "_id", "", "$n", "n.$", "_acl", "tags.0", "\ud800"])
_CONDITIONS = st.dictionaries(_OPERATORS, VALUES, max_size=2) | VALUES
_FILTERS = st.dictionaries(_NAMES | _OPERATORS, _CONDITIONS | st.lists(_CONDITIONS, max_size=2), max_size=3)
_GOOD_FILTERS: SearchStrategy[Any] = st.sampled_from(
    [{}, {"n": {"$gte": 1}}, {"n": {"$in": [1, 2]}}, {"$or": [{"n": 1}]}]
)
_SORTS: SearchStrategy[Any] = st.sampled_from([{"n": 1}, {"n": -1, "_id": 1}, {}, {"n": 2}]) | _FILTERS
_PIPELINES = st.lists(st.dictionaries(_STAGES, VALUES, min_size=1, max_size=1), max_size=3)
_GOOD_PIPELINES: SearchStrategy[Any] = st.sampled_from([
    [{"$match": {"n": {"$gte": 1}}}],
    [{"$group": {"_id": "$n", "count": {"$sum": 1}}}],
    [{"$unwind": "$tags"}, {"$limit": 2}],
])  # fmt: skip
_TOKENS = st.sampled_from(["ann", "ann:clerk", "refused", "failing", ""])
_POSITIONS = st.sampled_from(
    ["", "x", "x/1", "a/b/c", "x/-1", "000000000000001-aaaaaaaa:q1/3", "x/99999999999999999999"]
)
_COLLATIONS: SearchStrategy[Any] = st.sampled_from([{"locale": "de"}, {"locale": "simple"}, {"locale": "nowhere"}])


def _as_text(values: SearchStrategy[Any]) -> SearchStrategy[str]:
    return values.map(json.dumps)


_SUBSCRIPTIONS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["subscribe", "resume"]),
        "id": _IDS,
        "bucket": st.sampled_from(["items", "books", "none"]),
    },
    optional={
        "query": _as_text(_GOOD_FILTERS | _FILTERS),
        "sort": _as_text(_SORTS),
        "offset": st.integers(0, 600),
        "limit": st.integers(0, 600),
        "token": _TOKENS,
        "initial": st.booleans(),
        "collapse": st.integers(-1, 50),
        "poll": st.integers(0, 2_000),
        "beforeImages": st.booleans(),
        "delta": st.booleans(),
        "delivery": st.sampled_from(["state", "exact"]),
        "offset_token": _POSITIONS,
        "collation": _COLLATIONS,
    },
)
_AGGREGATIONS = st.fixed_dictionaries(
    {
        "type": st.just("subscribe"),
        "id": _IDS,
        "bucket": st.just("items"),
        "pipeline": _as_text(_GOOD_PIPELINES | _PIPELINES),
    },
    optional={"collation": _COLLATIONS, "offset_token": _POSITIONS},
)
_OTHERS: SearchStrategy[Json] = st.one_of(
    st.fixed_dictionaries({"type": st.just("unsubscribe"), "id": _IDS}),
    st.fixed_dictionaries({"type": st.just("token")}, optional={"token": _TOKENS}),
    st.fixed_dictionaries({"type": st.just("ping")}, optional={"id": _IDS, "within": st.integers(0, 600_000)}),
    st.fixed_dictionaries({"type": st.just("cut")}, optional={"on": st.booleans()}),
)
VALID: SearchStrategy[Json] = st.one_of(_SUBSCRIPTIONS, _AGGREGATIONS, _OTHERS)


@st.composite
def _nearly_valid(draw: st.DrawFn) -> Json:
    """A valid message of which fields are missing, added, or have another value."""
    message = dict(draw(VALID))
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(message) or ["type"]))
        fault = draw(st.sampled_from(["drop", "replace", "add", "borrow"]))
        if fault == "drop":
            message.pop(name, None)
        elif fault == "replace":
            message[name] = draw(VALUES)
        elif fault == "add":
            message[draw(_TEXTS)] = draw(VALUES)
        else:
            message |= {"type": draw(st.sampled_from(["subscribe", "unsubscribe", "token", "ping", "cut", "shout"]))}
    return message


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """The text of a valid message with a part that is missing, or that has other bytes."""
    data = json.dumps(draw(VALID)).encode()
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(len(data), start + 8)))
    return data[:start] + draw(st.binary(max_size=4)) + data[end:]


_MESSAGES = st.one_of(VALID, _nearly_valid(), VALUES).map(lambda message: json.dumps(message).encode())
_LARGE = st.integers(LARGEST - 1, LARGEST + 1).map(lambda size: b"x" * size)
_DATA = st.one_of(
    _MESSAGES, _MESSAGES, _MESSAGES, _damaged(), st.binary(max_size=40), st.text(max_size=40).map(str.encode)
)
FRAMES: SearchStrategy[list[Frame]] = st.lists(st.builds(Frame, _DATA | _LARGE, st.booleans()), min_size=1, max_size=8)


def repeated(frames: list[Frame], times: int) -> Iterator[Frame]:
    """The frames again and again."""
    for _ in range(times):
        yield from frames
