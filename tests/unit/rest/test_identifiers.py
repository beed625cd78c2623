"""Ids in paths: one spelling for every value, one value for every spelling."""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import unquote

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId, Timestamp
from hypothesis import example, given
from hypothesis import strategies as st

from quaestor.rest.identifiers import BadIdError, format_id, parse_id

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
times = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=datetime.UTC)
)
scalars = (
    texts
    | st.from_regex(r"-?[0-9]{1,20}", fullmatch=True)
    | st.from_regex(r"[0-9a-fA-F]{24}", fullmatch=True)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.none()
    | st.binary(min_size=12, max_size=12).map(ObjectId)
    | st.builds(Binary, st.binary(max_size=20), st.sampled_from([0, 4, 5, 128]))
    | st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
    | st.decimals(-1000, 1000, places=3).map(Decimal128)
    | times
)
names = st.text(st.characters(exclude_characters="\0$", exclude_categories=["Cs"]), max_size=5)
keys = scalars | st.dictionaries(names, scalars | st.lists(scalars, max_size=3), max_size=3)


@given(keys)
@example("64b7f3a0c2a4b5d6e7f80912")
@example("..")
@example(Int64(5))
def test_every_id_is_found_again_under_its_spelling(key: Any) -> None:
    path = format_id(key)
    assert "/" not in path
    assert path not in ("", ".", "..")
    assert bson.encode({"": parse_id(unquote(path))}) == bson.encode({"": int(key) if type(key) is Int64 else key})


@given(keys, keys)
def test_different_ids_have_different_spellings(a: Any, b: Any) -> None:
    if format_id(a) == format_id(b):
        assert bson.encode({"": parse_id(unquote(format_id(a)))}) == bson.encode({"": parse_id(unquote(format_id(b)))})
        assert a == b or (a != a and b != b)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("64b7f3a0c2a4b5d6e7f80912", ObjectId("64b7f3a0c2a4b5d6e7f80912")),
        ("64B7F3A0C2A4B5D6E7F80912", "64B7F3A0C2A4B5D6E7F80912"),
        ("0", 0),
        ("-0", "-0"),
        ("007", "007"),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ('~"7"', "7"),
        ("~7.5", 7.5),
        ("a/b//c", "a/b//c"),
        ("٣", "٣"),
    ],
)
def test_an_identifier_names_its_key_and_type(text: str, key: Any) -> None:
    """The text of an identifier is parsed to the key that it names, with its type."""
    parsed = parse_id(text)
    assert (parsed, type(parsed)) == (key, type(key))


@pytest.mark.parametrize(
    "text",
    [
        "", "x" * 3000, "~", "~x", "~[1]", '~{"$gt": ""}', '~{"a": {"$ne": 1}}', '~{"$regex": "^a"}', "~" + "[" * 5000,
        '~{"$regularExpression": {"pattern": "a", "options": ""}}', "~NaN", '~{"a": 1, "a": 2}', '~{"$where": "1"}',
    ],
)  # fmt: skip
def test_texts_that_are_no_id_or_would_be_an_operator_are_refused(text: str) -> None:
    with pytest.raises(BadIdError):
        parse_id(text)
