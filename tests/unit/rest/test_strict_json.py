"""Extended JSON from strangers: what is refused, and where the refusal points to."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from typing import Any

import bson
import pytest
from bson import (
    SON,
    Binary,
    Code,
    DatetimeMS,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    json_util,
)
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from quaestor.rest import strict_json
from quaestor.rest.strict_json import OPTIONS, JsonError, dumps, locate, parse

REFUSED = [
    ("", 0, None),
    ("{", 1, None),
    ('{"a": 1,}', 7 if sys.version_info >= (3, 13) else 8, None),
    ("{'a': 1}", 1, None),
    ('{"a": 1} x', 9, None),
    ('{"a": 1, "a": 2}', 1, "/a"),
    ('{"a": [1, NaN]}', 10, "/a/1"),
    ('{"a": -Infinity}', 1, "/a"),
    ('{"a": 1e999}', 1, "/a"),
    ('{"a": 9223372036854775808}', 1, "/a"),
    ('{"a": %s}' % ("9" * 5000), 1, "/a"),
    ('{"a": {"b": "\\ud800"}}', 7, "/a/b"),
    ('{"\\udc00": 1}', 1, "/\udc00"),
    ('{"x": 1, "a\\u0000": 1}', 9, "/a\0"),
    ('{"a": {"$oid": "zz"}}', 1, "/a"),
    ('[0, {"$date": "yesterday"}]', 4, "/1"),
    ('{"a/b": {"~": {"$numberLong": "x"}}}', 9, "/a~1b/~0"),
    ('{"a": {"$binary": {"base64": 5, "subType": "00"}}}', 1, "/a"),
    ('{"a": {"$timestamp": {"t": -1, "i": 0}}}', 1, "/a"),
    ('{"a": {"$uuid": 3}}', 1, "/a"),
    ("[" * 9 + "]" * 9, 8, None),
    ("[" * 100_000, 8, None),
]


@pytest.mark.parametrize(("text", "position", "pointer"), REFUSED, ids=[text[:30] for text, *_ in REFUSED])
def test_invalid_json_is_refused_with_its_place(text: str, position: int, pointer: str | None) -> None:
    with pytest.raises(JsonError) as refused:
        parse(text, depth=8)
    assert (refused.value.position, refused.value.pointer) == (position, pointer)
    assert refused.value.reason


def test_brackets_in_strings_are_not_depth() -> None:
    assert parse('{"a": "[[[[[[\\"[[["}', depth=1) == {"a": '[[[[[["[[['}


TYPED = {
    '{"$oid": "64b7f3a0c2a4b5d6e7f80912"}': ObjectId("64b7f3a0c2a4b5d6e7f80912"),
    '{"$numberLong": "5"}': Int64(5),
    '{"$numberDecimal": "1.00"}': Decimal128("1.00"),
    '{"$timestamp": {"t": 1, "i": 2}}': Timestamp(1, 2),
    '{"$maxKey": 1}': MaxKey(),
    '{"$regularExpression": {"pattern": "^a", "options": "i"}}': Regex("^a", "i"),
}


@pytest.mark.parametrize("text", TYPED)
def test_types_of_extended_json_become_bson_values(text: str) -> None:
    value = parse(text, depth=8)
    assert (value, type(value)) == (TYPED[text], type(TYPED[text]))


@pytest.mark.parametrize(
    "text", ['{"$regex": "a", "$options": "i"}', '{"$oid": "x", "y": 1}', '{"$type": 2}', '{"$ref": "a", "$id": 1}']
)
def test_objects_that_are_no_type_stay_what_they_are(text: str) -> None:
    assert parse(text, depth=8) == json.loads(text)


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names.filter(lambda n: n[:1] != "$"), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(values, st.sampled_from([None, 0, 2]), st.booleans())
def test_every_place_is_found_in_every_layout(value: Any, indent: int | None, escaped: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)
    assert parse(text, depth=100) == value

    def check(member: Any, pointer: tuple[str | int, ...]) -> None:
        at = locate(text, pointer)
        if pointer and isinstance(pointer[-1], str):
            name, at = json.JSONDecoder().raw_decode(text, at)
            assert name == pointer[-1]
            at = text.index(":", at) + 1
            while text[at] in " \n":
                at += 1
        assert json.JSONDecoder().raw_decode(text, at)[0] == member

    strict_json.walk(value, check)


@given(values)
def test_a_written_value_is_read_as_it_was(value: Any) -> None:
    assert parse(dumps(value).decode(), depth=100) == value


@given(st.text(st.sampled_from('{}[]",:\\ntrue0123.eE-$oid a'), max_size=40))
def test_garbage_is_refused_and_nothing_else_happens(text: str) -> None:
    position = 0
    try:
        parse(text, depth=8)
    except JsonError as error:
        position = error.position
    assert 0 <= position <= len(text)


NATIVE: list[Any] = [
    None, True, 1, Int64(2**40), 2**70, 0.1, "text", "\u2028 \"é", ObjectId("0" * 24), b"bytes", Binary(b"x", 5),
    Decimal128("1.5"), datetime(2026, 1, 2, 3, 4, 5, 678_000), DatetimeMS(-(2**60)),
    Timestamp(1, 2), Regex("a+", "im"), re.compile("b", re.I),
    MinKey(), MaxKey(), DBRef("c", 1), Code("f()"), Code("f()", {"x": Int64(1)}), float("nan"), float("-inf"), (1, [2.0]), {},
    RawBSONDocument(bson.encode({"a": {"b": Int64(1)}})), SON([("z", 1), ("a", [Code("g")])]), {1, 2}, {1: {"$oid": "x"}},
]  # fmt: skip


@pytest.mark.parametrize("value", NATIVE)
def test_each_value_is_written_as_pymongo_writes_it(value: Any) -> None:
    """Alone, in an array and in an object below others."""
    for whole in (value, [value], {"a": 1, "b": {"c": [0, value]}}):
        wanted = json_util.dumps(whole, json_options=OPTIONS, ensure_ascii=False, separators=(",", ":"))
        assert dumps(whole).decode() == wanted
