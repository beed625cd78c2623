"""Compiled expressions, and the state of their compilation.

A compiled expression is a closure over a *frame*. A frame is a list with one slot per variable, `$$ROOT` in slot 0, filled in as
evaluation enters `$let`, `$map` and their kin. Expressions are strict and never escape, so one flat frame per
evaluation is enough and no scope is copied per array element.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.bson_order import MISSING, Key
from quaestor.query.expressions.errors import ExpressionError

Frame = list[Any]
Evaluate = Callable[[Frame], Any]
Operator = Callable[[str, Any, "Scope"], "Compiled"]
"""Compiles one operator from its name, its operand as written, and the scope."""


class _NotConstant:
    __slots__ = ()


NOT_CONSTANT: Final = _NotConstant()
ROOT_SLOT: Final = 0
WHOLE_DOCUMENT: Final = ""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A compiled expression.

    constant: its value if mongod's optimiser knows it before any document, else NOT_CONSTANT.
    terms: for associative operators, the operator and its operands, so that nested uses can be flattened as in mongod.
    """

    evaluate: Evaluate
    constant: Any = NOT_CONSTANT
    terms: tuple[str, tuple[Compiled, ...]] | None = None

    @property
    def is_constant(self) -> bool:
        return self.constant is not NOT_CONSTANT


def constant(value: Any) -> Compiled:
    return Compiled(lambda frame: value, value)


ABSENT: Final = constant(MISSING)
"""Stands for an optional argument that was not written; recognised by identity."""


@dataclass(slots=True, eq=False)
class Build:
    """The findings of one compilation.

    order_key: how values are compared; a collation has its own.
    paths: the paths read from the document so far; WHOLE_DOCUMENT if all of it is read.
    failures: errors met while folding constants, in order; mongod would return the first.
    slots: number of frame slots in use.
    patterns: it holds regular expressions.
    """

    operators: Mapping[str, Operator]
    order_key: Callable[[Any], Key]
    paths: set[str] = field(default_factory=set)
    failures: list[ExpressionError] = field(default_factory=list)
    slots: int = 1
    patterns: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A place in an expression, with the variables that are visible there.

    variables: visible variables by name, as frame slots.
    optimised: mongod's optimiser reaches this place: constants are folded, and fail the query if they fail. Below some
        operators it does not.
    """

    build: Build
    compile_operand: Callable[[Any, Scope], Compiled]
    variables: Mapping[str, int]
    optimised: bool = True

    @property
    def order_key(self) -> Callable[[Any], Key]:
        return self.build.order_key

    def compile(self, expression: Any) -> Compiled:
        """Compile an expression at this place. Raises MalformedQueryError or UnsupportedQueryError."""
        compiled = self.compile_operand(expression, self)
        return compiled if self.optimised else Compiled(compiled.evaluate)

    def unoptimised(self) -> Scope:
        return replace(self, optimised=False)

    def binding(self, names: Collection[str]) -> tuple[Scope, list[int]]:
        """Return a scope with these variables besides, each in a new slot; and the slots in the order of names."""
        first = self.build.slots
        slots = list(range(first, first + len(names)))
        self.build.slots += len(names)
        return replace(self, variables={**self.variables, **dict(zip(names, slots, strict=True))}), slots


def call(
    function: Callable[..., Any],
    operands: Sequence[Compiled],
    scope: Scope,
    *,
    foldable: bool = True,
    deciding: int = 0,
) -> Compiled:
    """Apply function to the operands' values; folded now if all of them are constant and the operator is foldable.

    deciding: if one of the first so many operands is null or missing, the result is null. The operands after it are not
        evaluated, so they cannot fail.
    """
    evaluations = tuple(operand.evaluate for operand in operands)
    applied = Compiled(_deciding(function, evaluations, deciding) if deciding else _application(function, evaluations))
    if foldable and all(operand.is_constant for operand in operands):
        return folded(applied, scope)
    return applied


def lazily(function: Callable[[Iterable[Any]], Any], operands: Sequence[Compiled], scope: Scope) -> Compiled:
    """Like `call`, for a function that stops at the deciding operand: it pulls the values one by one."""
    evaluations = tuple(operand.evaluate for operand in operands)
    applied = Compiled(lambda frame: function(evaluate(frame) for evaluate in evaluations))
    return folded(applied, scope) if all(operand.is_constant for operand in operands) else applied


def folded(expression: Compiled, scope: Scope) -> Compiled:
    """Return the expression as a constant. The expression must not read the frame. A failure is noted in the build."""
    try:
        return constant(expression.evaluate([]))
    except ExpressionError as error:
        scope.build.failures.append(error)
        return expression


def _application(function: Callable[..., Any], evaluations: tuple[Evaluate, ...]) -> Evaluate:
    match evaluations:
        case (only,):
            return lambda frame: function(only(frame))
        case (left, right):
            return lambda frame: function(left(frame), right(frame))
        case (first, second, third):
            return lambda frame: function(first(frame), second(frame), third(frame))
    return lambda frame: function(*[evaluate(frame) for evaluate in evaluations])


def _deciding(function: Callable[..., Any], evaluations: tuple[Evaluate, ...], deciding: int) -> Evaluate:
    first, rest = evaluations[:deciding], evaluations[deciding:]

    def evaluate(frame: Frame) -> Any:
        values = []
        for evaluation in first:
            value = evaluation(frame)
            if value is None or value is MISSING:
                return None
            values.append(value)
        return function(*values, *[evaluation(frame) for evaluation in rest])

    return evaluate


def check_variable_name(name: str, *, current_allowed: bool = True) -> None:
    """Check a name that a user gives to a variable. Raises MalformedQueryError."""
    if not name:
        raise MalformedQueryError("empty variable names are not allowed")
    if name == "CURRENT" and current_allowed:
        return
    if not ("a" <= name[0] <= "z" or name[0] > "\x7f"):
        raise MalformedQueryError(f"'{name}' starts with an invalid character for a user variable name")
    for character in name[1:]:
        if not (character.isascii() and (character.isalnum() or character == "_")) and character <= "\x7f":
            raise MalformedQueryError(f"'{name}' contains an invalid character for a variable name: '{character}'")
