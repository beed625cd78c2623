"""One identity for all ways to write a query, and for no other query."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from bson import Decimal128, Int64, Regex
from hypothesis import HealthCheck, assume, given, settings

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query import compile_node, compile_query, identity, normalise, parse
from quaestor.query.ast import Constant, Disjunction, Negation, Node, Predicate
from quaestor.query.normalise import normalise_and_identify
from tests.oracle.query_strategies import COLLECTIONS

SAME: list[list[dict[str, Any]]] = [
    [{}, {"$and": [{}]}, {"$comment": "x"}, {"$nor": [{"a": {"$in": []}}]}, {"$or": [{}, {"a": 1}]}, {"$alwaysTrue": 1}],
    [
        {"a": 1}, {"a": {"$eq": 1}}, {"a": {"$in": [1]}}, {"$and": [{"a": 1}]}, {"$or": [{"a": 1}, {"a": 1}]}, {"a": 1.0},
        {"a": Decimal128("1")}, {"$nor": [{"a": {"$ne": 1}}]}, {"a": {"$not": {"$not": {"$eq": Int64(1)}}}},
        {"a": {"$all": [1]}}, {"a": {"$in": [1, 1.0]}}, {"a": 1, "$comment": "why"},
    ],
    [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"$and": [{"b": 2}, {"$and": [{"a": 1}, {}]}]}, {"$and": [{"a": 1}], "b": 2}],
    [{"a": {"$gt": 1, "$lt": 5}}, {"a": {"$lt": 5, "$gt": 1}}, {"$and": [{"a": {"$gt": 1}}, {"a": {"$lt": 5}}]}],
    [{"a": {"$ne": 1}}, {"a": {"$nin": [1]}}, {"a": {"$not": {"$eq": 1}}}, {"$nor": [{"a": 1}]}],
    [{"a": {"$in": [1, 2]}}, {"a": {"$in": [2, 1, 2.0]}}],
    [{"a": {"$in": [1, Regex("x")]}}, {"$or": [{"a": Regex("x")}, {"a": 1}]}],
    [{"a": None}, {"a": {"$gte": None}}, {"a": {"$lte": None}}],
    [{"a": {"$exists": True}}, {"a": {"$exists": 1}}, {"a": {"$not": {"$exists": False}}}],
    [{"a": {"$type": "number"}}, {"a": {"$type": [1, 16, "long", "decimal"]}}],
    [{"a": Regex("x", "i")}, {"a": {"$regex": "x", "$options": "i"}}, {"a": {"$regex": Regex("x", "i")}}],
    [{"a": {"$elemMatch": {"b": 1, "c": 2}}}, {"a": {"$elemMatch": {"c": 2, "b": {"$eq": 1}}}}],
    [{"a": {"$all": [1, 2]}}, {"$and": [{"a": 2}, {"a": 1}]}],
    [{"a": {"$bitsAllSet": 5}}, {"a": {"$bitsAllSet": [2, 0, 0]}}],
    [{"a": {"$in": []}}, {"$nor": [{}]}, {"a": {"$gt": None}}, {"a": {"$all": []}}, {"$alwaysFalse": 1}],
    [{"a": {"b": 1, "c": 2}}],
    [{"a": {"c": 2, "b": 1}}],
    [{"a": "1"}],
    [{"a": True}],
    [{"a": {"$gt": 1}}],
    [{"a": {"$gte": 1}}],
    [{"a.b": 1}],
    [{"a": [1]}],
    [{"a": {"$size": 1}}],
    [{"a": {"$elemMatch": {"$gt": 1}}}],
    [{"a": {"$elemMatch": {"": {"$gt": 1}}}}],
    [{"a": {"$mod": [2, 1]}}],
    [{"a": {"$mod": [2, 0]}}],
    [{"a": 0.5}, {"a": Decimal128("0.50")}],
    [{"a": 0.1}],
    [{"a": Decimal128("0.1")}, {"a": Decimal128("0.10")}],
    [{"a": Decimal128("0.1000000000000000055511151231257827")}],
    [{"a": Decimal128("0.1000000000000000055511151231257828")}],
    [{"a": 2.0**200}],
    [{"a": Decimal128("1E+6000")}, {"a": Decimal128("10E+5999")}],
    [{"a": Decimal128("1E-6176")}],
]  # fmt: skip


@pytest.mark.parametrize("group", SAME, ids=str)
def test_the_same_query_has_one_identity(group: list[dict[str, Any]]) -> None:
    assert len({compile_query(filter_).identity for filter_ in group}) == 1


def test_different_queries_have_different_identities() -> None:
    identities = [compile_query(group[0]).identity for group in SAME]
    for (i, a), (j, b) in itertools.combinations(enumerate(identities), 2):
        assert a != b, (SAME[i][0], SAME[j][0])


def test_the_identity_does_not_depend_on_the_process() -> None:
    """The identity names pipelines and partitions, so it must be the same everywhere and for ever."""
    assert compile_query({"a": {"$gte": 1, "$lt": 2}, "b": "x"}).identity.hex() == GOLDEN


GOLDEN = "295ea9823465517b48e9e8ee934ec572"


def test_the_normal_form_uses_few_operators() -> None:
    """The index has to know negations, and neither `$ne`, `$nin`, `$all` nor patterns in `$in`."""
    root = compile_query({"a": {"$ne": 1, "$nin": [2, Regex("x")], "$all": [3]}}).root
    operators = {node.operator for node in predicates(root)}
    assert operators == {"$eq", "$regex"}


def predicates(node: Node) -> list[Predicate]:
    match node:
        case Predicate():
            return [node]
        case Negation():
            return predicates(node.member)
        case Constant():
            return []
    return [predicate for member in node.members for predicate in predicates(member)]


def test_predicates_on_one_path_stay_apart() -> None:
    """On an array different elements may satisfy them, so a range is not the same as its two ends."""
    query = compile_query({"a": {"$gt": 5, "$lt": 3}})
    assert query.matches({"a": [1, 9]})
    assert not compile_query({"a": {"$elemMatch": {"$gt": 5, "$lt": 3}}}).matches({"a": [1, 9]})
    assert not isinstance(query.root, Disjunction)


@settings(max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=COLLECTIONS)
def test_normalising_changes_no_answer_and_is_done_once(
    case: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    """The normal form of the normal form is itself, and it matches what the filter as written matches."""
    documents, filters = case
    trees = []
    for filter_ in filters:
        try:
            trees.append(parse(filter_))
        except (MalformedQueryError, UnsupportedQueryError):
            continue
    assume(trees)
    for tree in trees:
        normal, known = normalise_and_identify(tree)
        assert known == identity(normal) == identity(normalise(normal))
        written, rewritten = compile_node(tree), compile_node(normal)
        assert [written(document) for document in documents] == [rewritten(document) for document in documents]
