"""Compiled queries: short cuts agree with the general way, refusals say why."""

from __future__ import annotations

import datetime
import itertools
import uuid
from typing import Any

import bson
import pytest
from bson import DatetimeMS, Decimal128, Int64, ObjectId
from bson.raw_bson import RawBSONDocument

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query import compile_query
from tests.unit.query.test_one_function import reference

UTC = datetime.UTC
DAY = datetime.datetime(2020, 5, 17, 12)
OPERANDS: list[Any] = [
    0, 5, -3, 2.5, Int64(5), Decimal128("5"), float("inf"), float("nan"), "m", "", ObjectId("5" * 24), DAY,
    DAY + datetime.timedelta(microseconds=1500), DAY.replace(tzinfo=UTC), datetime.datetime.max, True, None,
]  # fmt: skip
VALUES: list[Any] = [
    *OPERANDS, 4, 6, 5.0, "a", "z", [], [4, 6], [1, "x"], [[5]], {"b": 5}, DAY + datetime.timedelta(milliseconds=1),
    DAY + datetime.timedelta(milliseconds=2), (DAY + datetime.timedelta(milliseconds=1)).replace(tzinfo=UTC), DatetimeMS(5),
]  # fmt: skip
RANGES = ["$gt", "$gte", "$lt", "$lte"]
FILTERS: list[dict[str, Any]] = [
    *({"a": {name: operand}} for name in ("$eq", "$ne", *RANGES) for operand in OPERANDS),
    *(
        {"a": {lower: low, upper: high}}
        for lower, upper in itertools.combinations(RANGES, 2)
        for low in OPERANDS
        for high in OPERANDS
    ),
    *({"a": {"$gte": low, "$lt": high}, "b": 1, "c": 1} for low in OPERANDS for high in OPERANDS),
]


def test_short_cuts_agree_with_the_general_way() -> None:
    """On plain values, on arrays, on every numeric type, on dates with and without a time zone, and on nothing."""
    documents = [{"b": 1, "c": 1}, *({"a": value, "b": 1, "c": 1} for value in VALUES)]
    for filter_ in FILTERS:
        query = compile_query(filter_)
        general = reference(query.root)
        for document in documents:
            assert query.matches(document) == general(document), (filter_, document)


def test_documents_of_every_kind_that_pymongo_gives() -> None:
    record = {"_id": 1, "a": {"b": [1, {"c": "x"}]}, "u": uuid.UUID(int=7), "when": DAY}
    raw = RawBSONDocument(bson.encode({**record, "u": bson.Binary.from_uuid(record["u"])}))
    aware = {**record, "when": DAY.replace(tzinfo=UTC)}
    query = compile_query(
        {"a.b.c": "x", "a.b.0": 1, "u": uuid.UUID(int=7), "when": {"$gte": DAY, "$lt": DAY.replace(hour=13)}}
    )
    assert query.matches(record)
    assert query.matches(raw)
    assert query.matches(aware)


@pytest.mark.parametrize(
    ("filter_", "reason"),
    [
        ({"$where": "1"}, "JavaScript"),
        ({"$sampleRate": 0.5}, "random"),
        ({"a": {"$_internalExprEq": 1}}, "_internalExprEq"),
    ],
)
def test_filters_that_are_not_evaluated_say_so(filter_: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=reason):
        compile_query(filter_)


@pytest.mark.parametrize(
    ("filter_", "reason"),
    [
        ([], "must be a document"),
        ({"$foo": 1}, "unknown top level operator"),
        ({"a": {"$foo": 1}}, "unknown operator '\\$foo' on 'a'"),
        ({"a": {"$gt": 1, "b": 1}}, "unknown operator 'b'"),
        ({"$and": []}, "non-empty array"),
        ({"$or": [1]}, "must be a document"),
        ({"a": {"$in": 1}}, "needs an array"),
        ({"a": {"$in": [{"$gt": 1}]}}, "cannot hold the operator"),
        ({"a": {"$not": 1}}, "needs operators"),
        ({"a": {"$not": {}}}, "cannot be empty"),
        ({"a": {"$gt": bson.Regex("x")}}, "regular expression"),
        ({"a": {"$ne": bson.Regex("x")}}, "use \\$not"),
        ({"a": {"$size": -1}}, "non-negative"),
        ({"a": {"$type": "foo"}}, "unknown type name"),
        ({"a": {"$mod": [0, 1]}}, "divide by 0"),
        ({"a": {"$options": "i"}}, "needs a \\$regex"),
        ({"a": {"$all": [{"$elemMatch": {}}, 1]}}, "mixes"),
        ({"a": {"$bitsAllSet": -1}}, "not negative"),
        ({"a": {"$elemMatch": 1}}, "needs a document"),
        ({"a": {"$elemMatch": {"$expr": True}}}, "top-level"),
        ({".".join("a" * 181): 1}, "components"),
        ({"a": {1, 2}}, "not a BSON type"),
    ],
)
def test_malformed_filters_are_refused_with_the_reason(filter_: Any, reason: str) -> None:
    """The message names the operator, the path and the value."""
    with pytest.raises(MalformedQueryError, match=reason):
        compile_query(filter_)


def test_nesting_is_limited_as_in_mongod() -> None:
    """199 levels of documents and arrays; the stack may give out earlier, which is then said."""

    def nested(levels: int) -> dict[str, Any]:
        operators: dict[str, Any] = {"$gt": 1}
        for _ in range(levels):
            operators = {"$not": operators}
        return {"a": operators}

    assert compile_query(nested(100)).matches({"a": 2})
    assert not compile_query(nested(101)).matches({"a": 2})
    with pytest.raises(MalformedQueryError, match="nested deeper"):
        compile_query(nested(198))


def test_a_huge_bit_position_costs_nothing() -> None:
    query = compile_query({"a": {"$bitsAnySet": [(1 << 31) - 1]}})
    assert query.matches({"a": -1})
    assert not query.matches({"a": b"\xff"})
    assert len(query.identity) == 16


@pytest.mark.parametrize(
    ("one", "other"),
    [(5, 5.0), (5, Int64(5)), (1, True), (None, False), ({"b": 1, "c": 2}, {"c": 2, "b": 1}), ("5", 5), ([1], 1)],
    ids=repr,
)
def test_filters_that_bson_distinguishes_are_compiled_each_for_itself(one: Any, other: Any) -> None:
    """Equal filters share one compiled form; another type or order of fields gives another one."""
    compiled = compile_query({"a": one, "z": "distinguished"})
    assert compile_query({"a": one, "z": "distinguished"}) is compiled
    assert compile_query({"a": other, "z": "distinguished"}) is not compiled


def test_filters_with_regular_expressions_count_for_each_query_that_holds_them() -> None:
    """Such a compiled form is not shared: the steps of its expressions would otherwise be free."""
    assert compile_query({"a": {"$regex": "^x"}}) is not compile_query({"a": {"$regex": "^x"}})


def test_a_changed_filter_is_compiled_anew() -> None:
    """The caller may change its filter behind a call."""
    condition: dict[str, Any] = {"a": {"$in": [1]}}
    assert compile_query(condition).matches({"a": 1})
    condition["a"]["$in"].append(2)
    assert compile_query(condition).matches({"a": 2})
    assert not compile_query({"a": {"$in": [1]}}).matches({"a": 2})
