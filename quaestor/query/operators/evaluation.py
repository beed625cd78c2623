"""`$expr` and `$jsonSchema`, delegated; `$comment`, `$alwaysTrue`, `$alwaysFalse`. Manual: Evaluation Query Operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.ast import Constant, Node, Predicate
from quaestor.query.operators.contract import Compiler, DocumentOperator, Level, Parser
from quaestor.query.operators.integers import integer
from quaestor.query.paths import Matcher

_PACKAGE: Final = "quaestor.query"


def _delegate(module: str, name: str, operator: str) -> Callable[..., Any]:
    """Return a function of another module of this package, imported at first use: most filters need neither."""
    full = f"{_PACKAGE}.{module}"
    function: Callable[..., Any] | None = getattr(import_module(full), name, None) if find_spec(full) else None
    if function is None:
        raise UnsupportedQueryError(f"{operator} is not evaluated")
    return function


def _parse_expr(parser: Parser, operand: Any, level: Level) -> Node:
    if level is Level.ELEMENT:
        raise MalformedQueryError("$expr can only be applied to the top-level document")
    _delegate("expressions", "compile_expression", "$expr")(operand)
    return Predicate("", "$expr", operand)


def _expr(compiler: Compiler, predicate: Predicate) -> Matcher:
    evaluate = _delegate("expressions", "compile_expression", "$expr")(predicate.operand)
    truthy = _delegate("expressions", "truthy", "$expr")
    return lambda document: truthy(evaluate(document))


def _parse_json_schema(parser: Parser, operand: Any, level: Level) -> Node:
    if not isinstance(operand, Mapping):
        raise MalformedQueryError(f"$jsonSchema must be a document, not {operand!r}")
    _delegate("json_schema", "compile_schema", "$jsonSchema")(operand)
    return Predicate("", "$jsonSchema", operand)


def _json_schema(compiler: Compiler, predicate: Predicate) -> Matcher:
    compiled: Matcher = _delegate("json_schema", "compile_schema", "$jsonSchema")(predicate.operand)
    return compiled


def _parse_comment(parser: Parser, operand: Any, level: Level) -> None:
    """Accept any value; a comment has no influence on matches."""


def _parse_constant(name: str, value: bool) -> Callable[[Parser, Any, Level], Node]:
    def parse(parser: Parser, operand: Any, level: Level) -> Node:
        if integer(operand, name) != 1:
            raise MalformedQueryError(f"{name} must be 1, not {operand!r}")
        return Constant(value)

    return parse


DOCUMENT_OPERATORS: Final = {
    "$expr": DocumentOperator(parse=_parse_expr, matcher=_expr),
    "$jsonSchema": DocumentOperator(parse=_parse_json_schema, matcher=_json_schema),
    "$comment": DocumentOperator(parse=_parse_comment),
    "$alwaysTrue": DocumentOperator(parse=_parse_constant("$alwaysTrue", True)),
    "$alwaysFalse": DocumentOperator(parse=_parse_constant("$alwaysFalse", False)),
}
