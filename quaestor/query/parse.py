"""Parsing of a filter, in pymongo's form, to the tree of `ast.py`, refusing everything that mongod refuses.

mongod's rules in short: a key that starts with a dollar sign is a document operator; any other key is a path. Its value is a
document of field operators (decided by its first key, see `shape.py`), a regular expression to match, or a value to equal.
Manual: Query and Projection Operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.ast import Conjunction, Node, Predicate
from quaestor.query.bson_order import REGEX, type_bracket
from quaestor.query.operators import DOCUMENT_OPERATORS, FIELD_OPERATORS
from quaestor.query.operators.contract import Level
from quaestor.query.regex import Pattern
from quaestor.query.shape import as_filter, is_expression

DEEPEST: Final = 199
"""Deepest nesting of a filter: documents and arrays may be 200 deep in BSON, and the command itself is one level."""
LONGEST_PATH: Final = 180
"""Most components of a path."""
_NESTING: Final = (Mapping, list, tuple)
_DBREF_FIELDS: Final = frozenset({"$ref", "$id", "$db"})


def parse(source: Any) -> Node:
    """Return the filter as a tree, not yet normalised.

    Raises:
        MalformedQueryError: mongod would refuse the filter; the message gives the reason.
        UnsupportedQueryError: mongod would accept it, but it cannot be evaluated here.
    """
    if not isinstance(source, Mapping):
        raise MalformedQueryError(f"a filter must be a document, not {source!r}")
    _require_depth(source)
    try:
        return _PARSER.document(source, Level.TOP)
    except RecursionError as error:
        raise UnsupportedQueryError("a filter too deeply nested for the stack that is left") from error


class _Parser:
    """Implements `operators.contract.Parser`."""

    __slots__ = ()

    def document(self, source: Any, level: Level) -> Node:
        filter_ = as_filter(source)
        if filter_ is None:
            raise MalformedQueryError(f"a filter must be a document, not {source!r}")
        members = []
        for key, value in filter_.items():
            if not isinstance(key, str):
                raise MalformedQueryError(f"field names must be strings, not {key!r}")
            member = self._member(key, value, level)
            if member is not None:
                members.append(member)
        return members[0] if len(members) == 1 else Conjunction(tuple(members))

    def field(self, path: str, source: Mapping[str, Any], level: Level) -> Node:
        members = []
        for name, operand in source.items():
            operator = FIELD_OPERATORS.get(name)
            if operator is None:
                raise MalformedQueryError(f"unknown operator {name!r} on {path!r}")
            _require_bson(operand, f"{name} of {path!r}")
            member = operator.parse(self, path, operand, source, level)
            if member is not None:
                members.append(member)
        return members[0] if len(members) == 1 else Conjunction(tuple(members))

    def is_field_operator(self, name: Any) -> bool:
        return name in FIELD_OPERATORS

    def _member(self, key: str, value: Any, level: Level) -> Node | None:
        _require_bson(value, key)
        if key.startswith("$"):
            if key in _DBREF_FIELDS:
                return Predicate(key, "$eq", value)
            operator = DOCUMENT_OPERATORS.get(key)
            if operator is None:
                raise MalformedQueryError(f"unknown top level operator {key!r}")
            return operator.parse(self, value, level)
        if key.count(".") >= LONGEST_PATH:
            raise MalformedQueryError(f"a path has more than {LONGEST_PATH} components: {key[:40]!r}...")
        if is_expression(value):
            return self.field(key, value, level)
        if type_bracket(value) == REGEX:
            return Predicate(key, "$regex", Pattern.of_value(value))
        return Predicate(key, "$eq", value)


_PARSER: Final = _Parser()


def _require_depth(source: Any) -> None:
    depth = 0
    level = [source]
    while level:
        depth += 1
        if depth > DEEPEST:
            raise MalformedQueryError(f"the filter is nested deeper than {DEEPEST} levels")
        level = [
            member
            for value in level
            for member in (value.values() if isinstance(value, Mapping) else value)
            if isinstance(member, _NESTING)
        ]


def _require_bson(value: Any, what: str) -> None:
    try:
        type_bracket(value)
    except TypeError as error:
        raise MalformedQueryError(f"{what}: {error}") from error
