"""`$jsonSchema` beyond the oracle: reasons, and the schemas that this engine declines."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Int64

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.json_schema import compile_schema

FLIGHT = {
    "bsonType": "object",
    "title": "a flight",
    "required": ["carrier", "origin"],
    "properties": {
        "carrier": {"bsonType": "string", "pattern": "^[A-Z0-9]{2}$"},
        "origin": {"enum": ["EWR", "JFK", "LGA"]},
        "delay": {"bsonType": ["int", "null"], "minimum": -120, "description": "minutes"},
        "stops": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 3},
    },
}


@pytest.mark.parametrize(
    ("document", "valid"),
    [
        ({"carrier": "UA", "origin": "EWR"}, True),
        ({"carrier": "UA", "origin": "EWR", "delay": None, "stops": ["ORD"]}, True),
        ({"carrier": "United", "origin": "EWR"}, False),
        ({"carrier": "UA"}, False),
        ({"carrier": "UA", "origin": "EWR", "delay": -121}, False),
        ({"carrier": "UA", "origin": "EWR", "delay": 2.5}, False),
        ({"carrier": "UA", "origin": "EWR", "stops": ["ORD", "ORD"]}, False),
    ],
)
def test_a_schema_people_write(document: dict[str, Any], valid: bool) -> None:
    assert compile_schema(FLIGHT)(document) is valid


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "#/definitions/a"}, "not currently supported"),
        ({"format": "email"}, "not currently supported"),
        ({"propertyNames": {}}, "Unknown"),
        ({"type": "integer"}, "integer"),
        ({"type": "int"}, "Unknown type name alias: int"),
        ({"type": "number", "bsonType": "int"}, "both"),
        ({"required": []}, "empty"),
        ({"exclusiveMinimum": True}, "'minimum' must be a present"),
        ({"properties": {"a": {"properties": {"b": {"minLength": -1}}}}}, "non-negative"),
        ({"properties": {"a": {"pattern": "("}}}, "missing"),
        ("a", "object"),
    ],
)
def test_schemas_that_mongod_refuses_are_malformed_with_its_reason(schema: Any, reason: str) -> None:
    with pytest.raises(MalformedQueryError, match=reason):
        compile_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a.b": {"type": "string"}}},
        {"required": ["a.b"]},
        {"dependencies": {"a.b": ["c"]}},
        {"properties": {"a": {"encrypt": {"bsonType": "int"}}}},
    ],
)
def test_paths_and_keywords_of_encryption_are_unsupported(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedQueryError):
        compile_schema(schema)


def test_the_schema_of_the_property_without_a_name_is_about_the_document_that_has_it() -> None:
    """As in mongod, which takes the empty name for a path of no steps."""
    check = compile_schema({"properties": {"": {"type": "string"}}})
    assert check({"a": 1})
    assert not check({"": "a string"})
    assert compile_schema({"required": [""]})({"": 1})


def test_a_schema_that_its_owner_changes_later_stays_as_it_was_compiled() -> None:
    """Equal schemas share one function, which nobody can change from outside."""
    schema = {"properties": {"n": {"minimum": 5}}}
    check = compile_schema(schema)
    assert compile_schema({"properties": {"n": {"minimum": 5}}}) is check
    schema["properties"]["n"]["minimum"] = 50
    assert check({"n": 7})
    assert not compile_schema(schema)({"n": 7})


@pytest.mark.parametrize(("bound", "value", "equal"), [(5, 5.0, False), (5, Int64(5), False), (5, 5, True)])
def test_schemas_that_differ_in_a_type_share_nothing(bound: Any, value: Any, equal: bool) -> None:
    """mongod keeps numbers of different types apart inside a schema's text."""
    first, second = compile_schema({"enum": [bound, "types"]}), compile_schema({"enum": [value, "types"]})
    assert (first is second) is equal
