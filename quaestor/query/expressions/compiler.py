"""MongoDB's aggregation expressions, compiled once to closures. Semantics: mongod 6.0, its optimiser included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

import bson
from bson import CodecOptions
from bson.binary import UuidRepresentation
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.allowance import within_allowance
from quaestor.query.bson_order import MISSING, Key
from quaestor.query.bson_order import order_key as binary_order
from quaestor.query.expressions import literals
from quaestor.query.expressions.kinds import is_string
from quaestor.query.expressions.nodes import ROOT_SLOT, Build, Compiled, Evaluate, Scope
from quaestor.query.expressions.paths import compile_path


class Expression(Protocol):
    """A compiled expression: maps a document and its variables to a value; MISSING for missing."""

    def __call__(self, document: Mapping[str, Any], values: Mapping[str, Any] | None = None, /) -> Any: ...


_CODEC: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    uuid_representation=UuidRepresentation.STANDARD, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


def compile_expression(
    expression: Any,
    *,
    variables: Collection[str] = (),
    order_key: Callable[[Any], Key] = binary_order,
) -> Expression:
    """Compile an expression to a function of a document and the values of variables; it returns MISSING for missing.

    expression: as sent, with the types that pymongo encodes.
    variables: names that the surroundings define (`let` of a command or a `$lookup`), without dollar signs. The
        function takes their values by these names; an omitted variable is missing.
    order_key: how values compare; pass a collation's. Paths, conversions and case changes do not depend on it.

    The function is pure and may be called from many threads. A date it computes is a naive UTC datetime, or DatetimeMS
    outside the years 1 to 9999. Values that it only reads come from the document or the expression itself: do not change the
    result.

    Raises:
        MalformedQueryError: mongod would refuse it: unknown operator, wrong arity, or undefined variable. Also a constant part
            that fails when mongod's optimiser folds it, whatever the documents are.
        UnsupportedQueryError: it is valid but depends on more than the document, or on a feature that this engine lacks.
    The function raises ExpressionError where mongod would fail the query on that document, UnsupportedQueryError or
    UncertainMatchError where this engine is not certain.
    """
    build, compiled, names = _compiled(expression, variables, order_key)
    if build.failures:
        raise MalformedQueryError(str(build.failures[0])) from build.failures[0]
    evaluate: Evaluate = within_allowance(compiled.evaluate) if build.patterns else compiled.evaluate
    slots = build.slots
    first = ROOT_SLOT + 1

    def run(document: Mapping[str, Any], values: Mapping[str, Any] | None = None, /) -> Any:
        frame: list[Any] = [MISSING] * slots
        frame[ROOT_SLOT] = document
        if values and names:
            for slot, name in enumerate(names, start=first):
                frame[slot] = values.get(name, MISSING)
        return evaluate(frame)

    return run


def field_paths(expression: Any, *, variables: Collection[str] = ()) -> frozenset[str]:
    """Return the dotted paths that the expression reads from the document, for projections and `explain`.

    "" stands for the whole document. A path covers everything below it, and covered paths are left out.
    Raises MalformedQueryError or UnsupportedQueryError as `compile_expression` does.
    """
    build, _, _ = _compiled(expression, variables, binary_order)
    paths = build.paths
    if "" in paths:
        return frozenset({""})
    return frozenset(path for path in paths if not _is_covered(path, paths))


def _is_covered(path: str, paths: Collection[str]) -> bool:
    return any(path[:position] in paths for position, character in enumerate(path) if character == ".")


def _compiled(
    expression: Any, variables: Collection[str], key: Callable[[Any], Key]
) -> tuple[Build, Compiled, tuple[str, ...]]:
    from quaestor.query.expressions.operators import OPERATORS  # 30 modules; most queries have no expression

    names = tuple(variables)
    build = Build(OPERATORS, key)
    outermost = Scope(build, _compile_operand, {"ROOT": ROOT_SLOT, "CURRENT": ROOT_SLOT})
    scope, _ = outermost.binding(names)
    try:
        return build, scope.compile(_as_decoded(expression)), names
    except RecursionError as error:
        raise UnsupportedQueryError("an expression that is nested too deeply") from error


def _as_decoded(expression: Any) -> Any:
    """Return the expression with the types that a driver decodes, so that a constant looks like a stored value."""
    try:
        return bson.decode(bson.encode({"": expression}, codec_options=_CODEC), _CODEC)[""]
    except (BSONError, OverflowError, TypeError, ValueError) as error:
        raise MalformedQueryError(f"expression cannot be sent to MongoDB: {error}") from error


def _compile_operand(expression: Any, scope: Scope) -> Compiled:
    if is_string(expression) and expression.startswith("$"):
        return compile_path(expression, scope)
    if isinstance(expression, dict):
        if next(iter(expression), "").startswith("$"):
            return _compile_operator(expression, scope)
        return literals.compile_object(expression, scope)
    if isinstance(expression, list):
        return literals.compile_array(expression, scope)
    return literals.compile_constant(expression)


def _compile_operator(expression: Mapping[str, Any], scope: Scope) -> Compiled:
    if len(expression) != 1:
        raise MalformedQueryError(f"An object representing an expression must have exactly one field: {expression}")
    name, operand = next(iter(expression.items()))
    operator = scope.build.operators.get(name)
    if operator is None:
        raise MalformedQueryError(f"Unrecognized expression '{name}'")
    return operator(name, operand, scope)
