"""From a filter, as pymongo takes it, to the tree of `ast.py`, refusing what mongod refuses.

mongod's rules in short: a key that starts with a dollar sign is a document operator; any other is a path, whose value
is either a document of field operators (decided by its first key, see `shape.py`), a regular expression to be matched,
or a value to be equal to. Manual: Query and Projection Operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.invalidation.query.ast import Conjunction, Node, Predicate
from quaestor.invalidation.query.bson_order import REGEX, type_bracket
from quaestor.invalidation.query.operators import DOCUMENT_OPERATORS, FIELD_OPERATORS
from quaestor.invalidation.query.operators.contract import Level
from quaestor.invalidation.query.regex import Pattern
from quaestor.invalidation.query.shape import as_filter, is_expression

DEEPEST: Final = 100
"""mongod's limit on how deep filters may be nested."""
_DBREF_FIELDS: Final = frozenset({"$ref", "$id", "$db"})


def parse(source: Any) -> Node:
    """The filter as a tree, not yet normalised.

    Raises:
        MalformedQueryError: mongod would refuse the filter; the message says why.
        UnsupportedQueryError: mongod would accept it, but it cannot be evaluated here.
    """
    return _Parser().document(source, Level.TOP)


class _Parser:
    """Implements `operators.contract.Parser`. One per filter: it counts how deep it is."""

    __slots__ = ("_depth",)

    def __init__(self) -> None:
        self._depth = 0

    def document(self, source: Any, level: Level) -> Node:
        filter_ = as_filter(source)
        if filter_ is None:
            raise MalformedQueryError(f"a filter must be a document, not {source!r}")
        self._enter()
        members = []
        for key, value in filter_.items():
            if not isinstance(key, str):
                raise MalformedQueryError(f"field names must be strings, not {key!r}")
            member = self._member(key, value, level)
            if member is not None:
                members.append(member)
        self._depth -= 1
        return members[0] if len(members) == 1 else Conjunction(tuple(members))

    def field(self, path: str, source: Mapping[str, Any], level: Level) -> Node:
        self._enter()
        members = []
        for name, operand in source.items():
            operator = FIELD_OPERATORS.get(name)
            if operator is None:
                raise MalformedQueryError(f"unknown operator {name!r} on {path!r}")
            _require_bson(operand, f"{name} of {path!r}")
            member = operator.parse(self, path, operand, source, level)
            if member is not None:
                members.append(member)
        self._depth -= 1
        return members[0] if len(members) == 1 else Conjunction(tuple(members))

    def _member(self, key: str, value: Any, level: Level) -> Node | None:
        _require_bson(value, key)
        if key.startswith("$"):
            if key in _DBREF_FIELDS:
                return Predicate(key, "$eq", value)
            operator = DOCUMENT_OPERATORS.get(key)
            if operator is None:
                raise MalformedQueryError(f"unknown top level operator {key!r}")
            return operator.parse(self, value, level)
        if is_expression(value):
            return self.field(key, value, level)
        if type_bracket(value) == REGEX:
            return Predicate(key, "$regex", Pattern.of_value(value))
        return Predicate(key, "$eq", value)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise MalformedQueryError(f"the filter is nested deeper than {DEEPEST} levels")


def _require_bson(value: Any, what: str) -> None:
    try:
        type_bracket(value)
    except TypeError as error:
        raise MalformedQueryError(f"{what}: {error}") from error
