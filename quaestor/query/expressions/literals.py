"""Constants, document and array literals, `$literal`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bson import DBRef

from quaestor.errors import MalformedQueryError
from quaestor.query.bson_order import MISSING
from quaestor.query.expressions.kinds import none_for_missing
from quaestor.query.expressions.nodes import Compiled, Frame, Operator, Scope, call, constant
from quaestor.query.expressions.paths import check_field_name


def compile_constant(value: Any) -> Compiled:
    """Compile a value that stands for itself."""
    if isinstance(value, DBRef):
        raise MalformedQueryError("Unrecognized expression '$ref'")
    return constant(value)


def compile_object(expression: Mapping[str, Any], scope: Scope) -> Compiled:
    """Compile `{name: expression}`; missing members are left out."""
    members = []
    for name, member in expression.items():
        check_field_name(name)
        members.append((name, scope.compile(member)))
    if all(compiled.is_constant for _, compiled in members):
        return constant({name: part.constant for name, part in members if part.constant is not MISSING})
    evaluations = [(name, compiled.evaluate) for name, compiled in members]

    def evaluate(frame: Frame) -> dict[str, Any]:
        result = {}
        for name, evaluation in evaluations:
            value = evaluation(frame)
            if value is not MISSING:
                result[name] = value
        return result

    return Compiled(evaluate)


def compile_array(expression: list[Any], scope: Scope) -> Compiled:
    """Compile `[expression, ...]`; missing members become null."""
    members = [scope.compile(member) for member in expression]
    return call(lambda *values: [none_for_missing(value) for value in values], members, scope)


def _literal(name: str, operand: Any, scope: Scope) -> Compiled:
    return constant(operand)


OPERATORS: Final[Mapping[str, Operator]] = {"$literal": _literal, "$const": _literal}
