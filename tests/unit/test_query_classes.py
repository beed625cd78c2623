"""Kinds of results: collections with the classes of their queries, and which parameters count for one."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.model import Operation, Query
from quaestor.ttl.parameters import TtlParameters, Tuning
from quaestor.ttl.query_classes import collections_of, kind_of, kind_of_result


def find(document: dict[str, Any], *, namespace: str = "shop.items") -> Query:
    return Query(namespace=namespace, operation=Operation.FIND, filter=document)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"_id": 7}, "record"),
        ({"_id": {"$eq": 7}}, "record"),
        ({"_id": {"a": 1}, "open": True}, "record"),
        ({"_id": {"$in": [7]}}, "find"),
        ({"_id": {"$gt": 7}}, "find"),
        ({"open": True}, "find"),
        ({}, "find"),
    ],
)
def test_queries_of_one_record_are_a_class_of_their_own(document: dict[str, Any], expected: str) -> None:
    assert kind_of(find(document)) == f"shop.items:{expected}"


def test_other_operations_are_classes() -> None:
    """A count is its own class also if its filter names one record, because it shows only that the record exists."""
    for operation in (Operation.COUNT, Operation.DISTINCT, Operation.AGGREGATE):
        query = Query(namespace="shop.items", operation=operation, filter={"_id": 1})
        assert kind_of(query) == f"shop.items:{operation.value}"


def test_a_result_of_several_queries_has_all_of_their_kinds_once() -> None:
    """The kinds are sorted, in any order of the queries; queries that only stand for tags do not count."""
    queries = [find({"a": 1}, namespace="shop.b"), find({"_id": 1}), find({"_id": 2}), find({}, namespace="q.control")]
    assert kind_of_result(queries, ignored="q.control") == "shop.b:find shop.items:record"
    assert kind_of_result(queries[3:], ignored="q.control") == ""


@pytest.mark.parametrize(
    ("kind", "collections"),
    [
        ("shop.items:find", "shop.items"),
        ("shop.b:find shop.a:record", "shop.a shop.b"),
        ("shop.items:find shop.items:record", "shop.items"),
        ("shop.odd name: of one:aggregate", "shop.odd name: of one"),
        ("shop.items", "shop.items"),
        ("", ""),
    ],
)
def test_collections_are_found_again(kind: str, collections: str) -> None:
    assert collections_of(kind) == collections


def test_parameters_of_a_class_go_before_those_of_its_collection() -> None:
    """A collection's parameters go before the default; parameters from before there were classes name collections."""
    whole, records = Tuning(quantile=0.3), Tuning(quantile=0.8)
    parameters = TtlParameters(kinds={"shop.items": whole, "shop.items:record": records})
    assert parameters.of("shop.items:record") == records
    assert parameters.of("shop.items:find") == whole
    assert parameters.of("shop.items") == whole
    assert parameters.of("shop.other:find") == parameters.default
