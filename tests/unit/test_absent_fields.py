"""Costly parts of a filter that one field decides: the same results, and no evaluation for documents without the field."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from quaestor.query.absent_fields import field_of
from quaestor.query.compile import _PARTS, general_matcher
from quaestor.query.compiled import compile_query
from quaestor.rest.access import Principal
from quaestor.rest.record_acl import condition

SCHEMA = {"$jsonSchema": {"properties": {"a": {"bsonType": "object", "required": ["b"]}}}}


@pytest.mark.parametrize(
    ("filter", "field"),
    [
        ({"a": 1}, "a"),
        ({"a.b.0": {"$gt": 1}}, "a"),
        ({"a": {"$ne": 1}}, "a"),
        ({"$or": [{"a.b": 1}, {"a.c": {"$exists": False}}]}, "a"),
        ({"$or": [{"a.b": 1}, {"b": 1}]}, None),
        ({"$nor": [{"a": 1}, {"a": 2}]}, "a"),
        ({"a": {"$elemMatch": {"b": 1, "c": 2}}}, "a"),
        (SCHEMA, "a"),
        ({"$jsonSchema": {"properties": {"a": {}, "b": {}}}}, None),
        ({"$jsonSchema": {"properties": {"": {"required": ["a"]}}}}, None),
        ({"$jsonSchema": {"required": ["a"], "properties": {"a": {}}}}, None),
        ({"$jsonSchema": {"properties": {}}}, None),
        ({"$jsonSchema": {"minProperties": 1}}, None),
        ({"$expr": {"$eq": ["$a", 1]}}, None),
        ({}, None),
    ],
    ids=repr,
)
def test_the_field_that_decides_a_filter(filter: dict[str, Any], field: str | None) -> None:  # noqa: A002
    """Only a filter whose other fields never count has one."""
    assert field_of(compile_query(filter).root) == field


def _value(random: Random, depth: int = 3) -> Any:
    kind = random.randrange(7 if depth else 4)
    if kind < 4:
        return random.choice([None, 1, "*", "user:ada", "role:x", "b", True])
    if kind == 4:
        return [_value(random, depth - 1) for _ in range(random.randrange(4))]
    return {
        random.choice(["a", "b", "read", "allow", "deny"]): _value(random, depth - 1)
        for _ in range(random.randrange(4))
    }


CONDITIONS = [
    condition("a", "read", Principal(user="ada", roles=frozenset({"x"}))),
    condition("a", "read", Principal()),
    {
        "$and": [
            {"a": {"$not": {"$regex": "^(a|b)+$"}}},
            SCHEMA,
            {"b": {"$not": {"$regex": "(x+)+y"}}},
            {"$expr": {"$eq": ["$b", 1]}},
        ]
    },
    {"$and": [SCHEMA, {"a.b": None}, {"$jsonSchema": {"properties": {"b": {"enum": [1, None, "b"]}}}}]},
    {"$and": [SCHEMA, {"b": {"$in": [1, "b"]}}, {"b": {"$ne": None}}]},
]


@pytest.mark.parametrize("restriction", CONDITIONS, ids=range(len(CONDITIONS)))
def test_results_are_those_of_the_whole_filter(restriction: dict[str, Any]) -> None:
    """2,000 random documents each, a third of them without the field; results of both kinds occur."""
    random = Random(7)
    query = compile_query({"$and": [{"k": {"$in": [1, None]}}, restriction]})
    whole = general_matcher(query.root)
    results = set()
    for _ in range(2_000):
        document = {name: _value(random) for name in ("a", "b", "k") if random.random() < 0.66}
        assert query.matches(document) == whole(document), document
        results.add((query.matches(document), "a" in document))
    assert results >= {(True, False), (False, True), (False, False)}


def test_queries_with_the_same_rules_share_their_function() -> None:
    """The first compilation counts the expressions of the rules, as each query does; later ones find them."""
    restriction = condition("shared", "read", Principal(user="ada"))
    for n in range(3):
        assert compile_query({"$and": [{"k": n}, restriction]}).matches({"k": n})
    known = len(_PARTS)
    for n in range(3, 30):
        query = compile_query({"$and": [{"k": n}, restriction]})
        assert query.matches({"k": n, "shared": {"read": {"allow": ["user:ada"]}}})
        assert not query.matches({"k": n, "shared": {"read": {"allow": ["user:bob"]}}})
    assert len(_PARTS) == known


def test_parts_with_regular_expressions_count_for_each_query() -> None:
    """Otherwise a thousand expressions would cost what one may cost."""
    hard = {"$and": [{f"h.{n}": {"$regex": f"^(a|b{n}){{1,50}}$"}} for n in range(4)]}
    known = len(_PARTS)
    for n in range(3):
        compile_query({"$and": [{"k": n}, hard]})
    assert len(_PARTS) == known


def test_documents_without_rules_pass_no_rules() -> None:
    """The condition of a live query on the rules of records is evaluated only for records that have rules."""
    restriction = condition("_acl", "read", Principal())
    query = compile_query({"$and": [{"k": 1}, restriction]})

    class Read(dict[str, Any]):
        """Document that notes which fields are looked up."""

        looked_up: set[str]

        def get(self, name: str, default: Any = None) -> Any:
            """Look a field up."""
            self.looked_up.add(name)
            return super().get(name, default)

        def __getitem__(self, name: str) -> Any:
            """Look a field up."""
            self.looked_up.add(name)
            return super().__getitem__(name)

    document = Read(k=1, text="x")
    document.looked_up = set()
    assert query.matches(document)
    assert document.looked_up <= {"k"}
    assert not query.matches({"k": 1, "_acl": {"read": {"allow": ["user:ada"]}}})
    assert query.matches({"k": 1, "_acl": {"read": {"allow": ["*"]}}})
