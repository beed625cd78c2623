"""`$regex` with `$options`. Manual: $regex. The engine and its guarantees: `quaestor.query.regex`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.ast import Node, Predicate
from quaestor.query.bson_order import MISSING, REGEX, STRING, order_key, type_bracket
from quaestor.query.operators.contract import Compiler, FieldOperator, Level, Parser
from quaestor.query.paths import Test
from quaestor.query.regex import Pattern


def _parse_regex(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    options = siblings.get("$options")
    if "$options" in siblings and type_bracket(options) != STRING:
        raise MalformedQueryError(f"$options of {path!r} has to be a string, not {options!r}")
    if type_bracket(operand) == REGEX:
        own = Pattern.of_value(operand)
        if options is None:
            return Predicate(path, "$regex", own)
        if not own.options:
            return Predicate(path, "$regex", Pattern.of_value(operand, options))
        if options or list(siblings).index("$options") > list(siblings).index("$regex"):
            raise MalformedQueryError(f"options of {path!r} are set in both $regex and $options")
        return Predicate(path, "$regex", own)
    if type_bracket(operand) != STRING:
        raise MalformedQueryError(f"$regex of {path!r} has to be a string or a regular expression, not {operand!r}")
    return Predicate(path, "$regex", Pattern.of_value(operand, options))


def _parse_options(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> None:
    if "$regex" not in siblings:
        raise MalformedQueryError(f"$options of {path!r} needs a $regex")


def _test(compiler: Compiler, predicate: Predicate) -> Test:
    pattern: Pattern = predicate.operand
    search = pattern.occurs
    key = (REGEX, (pattern.source, pattern.options))

    def matches(value: Any) -> bool:
        if value.__class__ is str:
            return search(value)
        if value is MISSING:
            return False
        bracket = type_bracket(value)
        if bracket == REGEX:
            return order_key(value) == key
        return bracket == STRING and search(str(value))

    return matches


OPERATORS: Final = {
    "$regex": FieldOperator(parse=_parse_regex, test=_test, identity=lambda pattern: [pattern.source, pattern.options]),
    "$options": FieldOperator(parse=_parse_options),
}
