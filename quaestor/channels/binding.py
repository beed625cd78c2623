"""Binding of values to the names `$name` of a statement. A value becomes a node of the syntax tree, never text of a query."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from sqlglot import exp

from quaestor.channels.statements import Statement, StatementError
from quaestor.channels.statements.bodies import DIALECT, query_of
from quaestor.channels.statements.model import Body, Bound, Explain, Point, Query, Value

LONGEST_TEXT: Final = 64 * 1024
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_Statement = TypeVar("_Statement", bound=Statement)


def bound_statement(statement: _Statement, values: Mapping[str, Any]) -> _Statement:
    """Return a statement whose names have values. Raises StatementError for a name without a value."""
    changes: dict[str, Any] = {}
    for part in fields(statement):
        value = getattr(statement, part.name)
        if isinstance(value, Bound):
            changes[part.name] = _value(statement, value, values)
        elif part.name == "values" and value is not None:
            changes[part.name] = tuple(_value(statement, entry, values) for entry in value)
    if isinstance(statement, Query):
        changes["body"] = bound_body(statement.body, values)
    if isinstance(statement, Explain) and is_dataclass(statement.target):
        changes["target"] = bound_statement(statement.target, values)
    return replace(statement, **changes)


def bound_body(body: Body, values: Mapping[str, Any]) -> Body:
    """Return a query whose names are constants. A query without names stays as it is. Raises StatementError."""
    tree = query_of(body)
    names = list(tree.find_all(exp.Placeholder, exp.Parameter))
    if not names:
        return body
    for node in names:
        name = node.name if isinstance(node, exp.Placeholder) else node.this.name
        if not name or name not in values:
            raise body.error(1, 1, f"the name ${name or '?'} has no value", (f"a value for {name!r}",) if name else ())
        node.replace(_constant(plain_value(values[name])))
    return Body(tree.sql(DIALECT), body.place)


def plain_value(value: Value | Any) -> Any:
    """Return a value as a record holds it. Raises ValueError for a value of no known type."""
    match value:
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case str() if len(value) <= LONGEST_TEXT and "\0" not in value:
            return value
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        case Point(x, y):
            return {"x": x, "y": y}
        case dict() if value.keys() == {"x", "y"} and all(isinstance(part, int | float) for part in value.values()):
            return {"x": float(value["x"]), "y": float(value["y"])}
        case list() | tuple() if len(value) <= 1_000:
            return [plain_value(entry) for entry in value]
        case _:
            raise ValueError(f"a value is {type(value).__name__}, out of range or too long")


def statement_value(value: Any) -> Value:
    """Return a value of `plain_value` as a statement writes it."""
    match value:
        case dict():
            return Point(value["x"], value["y"])
        case list():
            return tuple(map(statement_value, value))
        case _:
            kept: Value = value
            return kept


def checked_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a request. Raises ValueError."""
    for name in values:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:40]!r} cannot name a value: use letters, digits and _")
    return {name: plain_value(value) for name, value in values.items()}


def _value(statement: Statement, value: Value, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Bound):
        if value.name not in values:
            raise StatementError(*statement.place, f"the name ${value.name} has no value")
        return plain_value(values[value.name])
    if isinstance(value, tuple):
        return [_value(statement, entry, values) for entry in value]
    return plain_value(value)


def _constant(value: Any) -> exp.Expr:
    """Return the node of a value. The writer of the tree quotes strings."""
    match value:
        case datetime():
            return exp.cast(exp.Literal.string(value.replace(tzinfo=None).isoformat(" ")), "TIMESTAMP")
        case dict():
            parts = [exp.PropertyEQ(this=exp.to_identifier(name), expression=_constant(value[name])) for name in "xy"]
            return exp.Struct(expressions=parts)
        case list():
            return exp.Array(expressions=[_constant(entry) for entry in value])
        case float():
            return exp.cast(exp.Literal.string(repr(value)), "DOUBLE")
        case int() if not isinstance(value, bool):
            return exp.paren(exp.convert(value))
        case _:
            return exp.convert(value)
