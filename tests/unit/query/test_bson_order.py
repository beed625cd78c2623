"""The order of BSON values as keys."""

from __future__ import annotations

import datetime
import itertools
import re
import uuid
from bisect import bisect_left
from collections import OrderedDict
from typing import Any

import bson
import pytest
from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument
from bson.son import SON

from quaestor.query import bson_order
from quaestor.query.bson_order import MISSING, compare, order_key, type_bracket

UTC = datetime.UTC
ASCENDING: list[Any] = [
    MinKey(), MISSING, None, float("nan"), -float("inf"), Decimal128("-1E+6000"), -(1 << 63), -1.5, 0, Decimal128("0.1"), 0.1,
    1, 1.5, Decimal128("1.6"), (1 << 53), (1 << 53) + 1, 1e300, Decimal128("1E+6000"), float("inf"), "", "A", "a", "aa", "b",
    "é", "\uffff", "\U0001f600", {}, {"a": None}, {"a": 1}, {"a": 1, "b": 0}, {"b": 1}, {"a": "x"}, [], [None], [1], [1, 0],
    [2], ["a"], Binary(b""), Binary(b"z"), Binary(b"a", 5), Binary(b"aa"), Binary(b"a", 2), ObjectId("0" * 24),
    ObjectId("f" * 24), False, True, datetime.datetime(1, 1, 1), datetime.datetime(2020, 1, 1), Timestamp(0, 5),
    Timestamp(4_000_000_000, 1), Regex("a"), Regex("a", "i"), Regex("b"), Code("a"), Code("b"), Code("a", {}),
    Code("a", {"a": 1}), MaxKey(),
]  # fmt: skip


def test_values_of_all_types_have_one_order() -> None:
    """Keys of any two values compare as their places in the list, in both directions."""
    for (i, a), (j, b) in itertools.product(enumerate(ASCENDING), repeat=2):
        assert compare(a, b) == (i > j) - (i < j), (a, b)


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, Int64(1), Decimal128("1"), Decimal128("1.00"), Decimal128("10E-1")],
        [0, 0.0, -0.0, Decimal128("-0"), Decimal128("0E+10")],
        [float("nan"), Decimal128("NaN"), Decimal128("-NaN")],
        [float("inf"), Decimal128("Infinity")],
        [{"a": 1}, SON(a=1.0), OrderedDict(a=Int64(1)), RawBSONDocument(bson.encode({"a": 1}))],
        [[1, 2], (1.0, Int64(2))],
        [b"a", Binary(b"a", 0)],
        [uuid.UUID(int=5), Binary(uuid.UUID(int=5).bytes, 4)],
        [DBRef("c", 1), {"$ref": "c", "$id": 1}],
        [Regex("a", re.I | re.M), Regex("a", "im"), re.compile(b"a", re.I | re.M)],
        [
            datetime.datetime(2020, 1, 1, 0, 0, 0, 1999),
            datetime.datetime(2020, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
            datetime.datetime(2020, 1, 1, 1, 0, 0, 1000, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            DatetimeMS(1577836800001),
        ],
    ],
    ids=str,
)
def test_equal_values_have_equal_keys_and_hashes(equal: list[Any]) -> None:
    """Equal values of different number or document types are the same key of a dictionary."""
    keys = [order_key(value) for value in equal]
    assert len(set(keys)) == 1
    assert len({hash(key) for key in keys}) == 1


def test_neighbours_beyond_double_precision_differ() -> None:
    assert order_key((1 << 53) + 1) != order_key(float(1 << 53))
    assert order_key(Decimal128("9007199254740993")) == order_key((1 << 53) + 1)
    assert order_key(Decimal128("0.1")) != order_key(0.1)


def test_a_decimal_with_all_the_digits_it_can_have_of_a_double_differs() -> None:
    below, above = (Decimal128(f"0.100000000000000005551115123125782{digit}") for digit in "78")
    assert order_key(Decimal128("0.1")) < order_key(below) < order_key(0.1) < order_key(above)


def test_a_bracket_holds_its_values_and_not_nan() -> None:
    """The bracket's number and the next one enclose the keys of every number, and NaN is outside."""
    low, high = (bson_order.NUMBER,), (bson_order.NUMBER + 1,)
    for value in (0, -float("inf"), float("inf"), Decimal128("1E+6000"), -(1 << 63)):
        assert type_bracket(value) == bson_order.NUMBER
        assert low < order_key(value) < high
    assert order_key(float("nan")) < low
    assert type_bracket(float("nan")) == bson_order.NUMBER
    assert type_bracket(Code("a", {})) == bson_order.CODE_WITH_SCOPE
    assert type_bracket(True) == bson_order.BOOLEAN


def test_keys_can_be_bisected() -> None:
    keys = [order_key(value) for value in ASCENDING]
    assert all(bisect_left(keys, key) == position for position, key in enumerate(keys))


def test_nan_inside_documents_compares_field_names_before_values() -> None:
    assert compare({"a": float("nan")}, {"a": 1}) < 0
    assert compare({"b": float("nan")}, {"a": 1}) > 0


def test_values_outside_bson_are_refused() -> None:
    with pytest.raises(TypeError, match="not a BSON type"):
        order_key({1, 2})
