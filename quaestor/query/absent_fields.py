"""Costly members of a conjunction that depend on one field of the document: one result for all documents without the field.

The rules of records (`rest/record_acl.py`) are such members of every live query, and few records have rules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.query.ast import Conjunction, Constant, Disjunction, Negation, Node, Predicate
from quaestor.query.paths import Matcher

LEAST_COST: Final = 20
"""Least cost of the members, as `compile.cost` measures it, for which the look at the field pays."""


def field_of(node: Node) -> str | None:
    """Return the only field of the document itself that decides a node; None: several, all, or none."""
    match node:
        case Predicate(operator="$jsonSchema"):
            return _only_property(node.operand)
        case Predicate():
            return node.path.partition(".")[0] or None
        case Negation():
            return field_of(node.member)
        case Conjunction() | Disjunction():
            fields = set(map(field_of, node.members))
            return fields.pop() if len(fields) == 1 else None
        case Constant():
            return None


def _only_property(schema: Mapping[str, Any]) -> str | None:
    """Return the only property that a schema describes. Other keywords depend on all fields, as does the property ""."""
    if (
        list(schema) != ["properties"]
        or not isinstance(schema["properties"], Mapping)
        or len(schema["properties"]) != 1
    ):
        return None
    (name,) = schema["properties"]
    return str(name) or None


def by_field(node: Conjunction) -> dict[str, Conjunction]:
    """Return the parts of a conjunction by the field that decides them, without members that no single field decides."""
    members: dict[str, list[Node]] = {}
    for member in node.members:
        field = field_of(member)
        if field is not None:
            members.setdefault(field, []).append(member)
    return {field: Conjunction(tuple(part)) for field, part in members.items()}


def decided_at_once(field: str, matches: Matcher) -> Matcher:
    """Return the same function of a document, which is called only for documents with the field.

    matches: depends on the field alone. May raise UncertainMatchError.
    """
    try:
        without = matches({})
    except Exception:
        return matches
    return lambda document: matches(document) if field in document else without
