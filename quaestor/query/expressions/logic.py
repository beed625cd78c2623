"""`$and`, `$or`, `$not`: operands are coerced to bool; once the result is known, the rest is skipped.

mongod's optimiser flattens nested uses, evaluates the constant operands first and drops the others if the constants decide. A
dropped operand that would fail is never evaluated, in mongod as here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.query.expressions.forms import arguments_of, fixed
from quaestor.query.expressions.kinds import truthy
from quaestor.query.expressions.nodes import Compiled, Evaluate, Frame, Operator, Scope, constant


def _junction(deciding: bool) -> Operator:
    """Return `$and` or `$or`. deciding: the truth value that decides at once, False for `$and`, True for `$or`."""

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        operands: list[Compiled] = []
        for part in arguments_of(operand, scope):
            operands += part.terms[1] if part.terms is not None and part.terms[0] == name else (part,)
        if any(part.is_constant and truthy(part.constant) is deciding for part in operands):
            return constant(deciding)
        rest = tuple(part for part in operands if not part.is_constant)
        if not rest:
            return constant(not deciding)
        return Compiled(_deciding(deciding, tuple(part.evaluate for part in rest)), terms=(name, rest))

    return build


def _deciding(deciding: bool, evaluations: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(frame: Frame) -> bool:
        for evaluation in evaluations:
            if truthy(evaluation(frame)) is deciding:
                return deciding
        return not deciding

    return evaluate


OPERATORS: Final[Mapping[str, Operator]] = {
    "$and": _junction(False),
    "$or": _junction(True),
    "$not": fixed(1, lambda value: not truthy(value)),
}
