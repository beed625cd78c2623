"""Conditions without NOT: each is true, false, not true or not false (R2, R6, R7)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from sqlglot import exp

from quaestor.continuous.sql.current_time import OPERATORS, bound, involves_time, unknown
from quaestor.continuous.sql.formulas import Absent, Block, Every, Formula, Present, Some, Static, every, some
from quaestor.continuous.sql.refusals import refusal


class Aspect(Enum):
    """Question about a condition of three values."""

    TRUE = "true"
    FALSE = "false"
    NOT_TRUE = "not true"
    NOT_FALSE = "not false"


_NEGATED: Final = {
    Aspect.TRUE: Aspect.FALSE,
    Aspect.FALSE: Aspect.TRUE,
    Aspect.NOT_TRUE: Aspect.NOT_FALSE,
    Aspect.NOT_FALSE: Aspect.NOT_TRUE,
}
_OPPOSITE: Final = {
    Aspect.TRUE: Aspect.NOT_TRUE,
    Aspect.NOT_TRUE: Aspect.TRUE,
    Aspect.FALSE: Aspect.NOT_FALSE,
    Aspect.NOT_FALSE: Aspect.FALSE,
}
_INVERSE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
_ADVICE: Final = "compare columns with now() by <, <=, >, >=, =, <> or BETWEEN, and combine with AND, OR, NOT, CASE"

Subquery = Callable[[exp.Expr, Callable[[exp.Expr], Formula] | None], tuple[Block, ...]]
"""Reads a subquery into blocks; the function makes a condition of its only column."""


class Conditions:
    """Reader of conditions of one SELECT.

    subquery: reads subqueries, which may name columns of this SELECT.
    resolve: gives columns the unique names of their tables.
    """

    def __init__(self, subquery: Subquery, resolve: Callable[[exp.Expr], exp.Expr]) -> None:
        self._subquery = subquery
        self._resolve = resolve

    def formula(self, node: exp.Expr, aspect: Aspect = Aspect.TRUE) -> Formula:
        """Return the formula that is true exactly where a condition has an aspect.

        Raises QueryRefusedError.
        """
        if not involves_time(node) and node.find(exp.Query) is None:
            return _static(self._resolve(node), aspect)
        match node:
            case exp.Paren():
                return self.formula(node.this, aspect)
            case exp.Not():
                return self.formula(node.this, _NEGATED[aspect])
            case exp.And() | exp.Or():
                parts = [self.formula(part, aspect) for part in (node.this, node.expression)]
                holds = aspect in (Aspect.TRUE, Aspect.NOT_FALSE)
                return every(parts) if isinstance(node, exp.And) is holds else some(parts)
            case exp.Is():
                return self._is(node, aspect)
            case exp.Exists():
                return _quantified(self._subquery(node.this, None), present=aspect in (Aspect.TRUE, Aspect.NOT_FALSE))
            case exp.In() | exp.Between():
                return self._membership(node, aspect)
            case exp.Case():
                return self._case(node, aspect)
            case exp.If():
                return self._branches([(node.this, node.args["true"])], node.args.get("false"), aspect)
            case exp.Coalesce():
                return self._coalesce([node.this, *node.expressions], aspect)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                return self._null_safe(node, aspect)
            case exp.Subquery() | exp.Select():
                raise refusal(node, "a subquery stands where a value is needed", "write EXISTS, IN, ANY, ALL or a join")
        operator = OPERATORS.get(type(node))
        if operator is None:
            raise refusal(node, f"current time or a subquery is inside {node.key.upper()}", _ADVICE)
        return self._comparison(operator, node.this, node.expression, aspect)

    def _comparison(self, operator: str, left: exp.Expr, right: exp.Expr, aspect: Aspect) -> Formula:
        for side, inner in ((right, left), (left, right)):
            if isinstance(side, exp.Any | exp.All):
                return self._any_or_all(operator, inner, side, flipped=side is left, aspect=aspect)
        if not involves_time(left) and not involves_time(right):
            comparison = _COMPARISONS[operator](this=left, expression=right)
            if comparison.find(exp.Query) is not None:
                raise refusal(
                    comparison, "a subquery stands where a value is needed", "write EXISTS, IN, ANY, ALL or a join"
                )
            return _static(self._resolve(comparison), aspect)
        left, right = self._resolve(left), self._resolve(right)
        if aspect in (Aspect.FALSE, Aspect.NOT_TRUE):
            operator = _INVERSE[operator]
        truth = bound(operator, left, right)
        return truth if aspect in (Aspect.TRUE, Aspect.FALSE) else some((truth, unknown(truth)))

    def _any_or_all(
        self, operator: str, value: exp.Expr, quantifier: exp.Expr, *, flipped: bool, aspect: Aspect
    ) -> Formula:
        """R7: ANY is an EXISTS, ALL a NOT EXISTS of what is not true."""
        query = quantifier.this
        if not isinstance(query, exp.Query):
            raise refusal(quantifier, "ANY or ALL has no subquery", "write a SELECT inside")
        for_all = isinstance(quantifier, exp.All)
        inner = {
            (False, Aspect.TRUE): (Aspect.TRUE, True),
            (False, Aspect.NOT_TRUE): (Aspect.TRUE, False),
            (False, Aspect.FALSE): (Aspect.NOT_FALSE, False),
            (False, Aspect.NOT_FALSE): (Aspect.NOT_FALSE, True),
            (True, Aspect.TRUE): (Aspect.NOT_TRUE, False),
            (True, Aspect.NOT_TRUE): (Aspect.NOT_TRUE, True),
            (True, Aspect.FALSE): (Aspect.FALSE, True),
            (True, Aspect.NOT_FALSE): (Aspect.FALSE, False),
        }
        wanted, present = inner[for_all, aspect]
        outer = self._resolve(value)

        def compared(column: exp.Expr) -> Formula:
            sides = (column, outer) if flipped else (outer, column)
            return Conditions(self._subquery, lambda node: node)._comparison(operator, *sides, wanted)

        return _quantified(self._subquery(query, compared), present=present)

    def _is(self, node: exp.Is, aspect: Aspect) -> Formula:
        holds = aspect in (Aspect.TRUE, Aspect.NOT_FALSE)
        value = node.expression
        if isinstance(value, exp.Null):
            aspects = (Aspect.NOT_TRUE, Aspect.NOT_FALSE) if holds else (Aspect.TRUE, Aspect.FALSE)
            parts = [self.formula(node.this, part) for part in aspects]
            return every(parts) if holds else some(parts)
        if not isinstance(value, exp.Boolean):
            raise refusal(node, "IS compares with something else than TRUE, FALSE or NULL", _ADVICE)
        asked = Aspect.TRUE if value.this else Aspect.FALSE
        return self.formula(node.this, asked if holds else _OPPOSITE[asked])

    def _membership(self, node: exp.In | exp.Between, aspect: Aspect) -> Formula:
        if isinstance(node, exp.Between):
            low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
            high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
            return self.formula(exp.And(this=low, expression=high), aspect)
        query = node.args.get("query")
        if query is not None:
            return self._any_or_all("=", node.this, exp.Any(this=query.unnest()), flipped=False, aspect=aspect)
        equal = [exp.EQ(this=node.this.copy(), expression=value.copy()) for value in node.expressions]
        return self.formula(exp.or_(*equal), aspect)

    def _case(self, node: exp.Case, aspect: Aspect) -> Formula:
        branches = []
        for branch in node.args["ifs"]:
            condition = branch.this
            if node.this is not None:
                condition = exp.EQ(this=node.this.copy(), expression=condition.copy())
            branches.append((condition, branch.args["true"]))
        return self._branches(branches, node.args.get("default"), aspect)

    def _branches(self, branches: list[tuple[exp.Expr, exp.Expr]], default: exp.Expr | None, aspect: Aspect) -> Formula:
        """R6: the first true condition decides."""
        alternatives: list[Formula] = []
        passed: list[Formula] = []
        for condition, value in branches:
            chosen = (*passed, self.formula(condition, Aspect.TRUE), self.formula(value, aspect))
            alternatives.append(every(chosen))
            passed.append(self.formula(condition, Aspect.NOT_TRUE))
        alternatives.append(every((*passed, self.formula(default if default is not None else exp.null(), aspect))))
        return some(alternatives)

    def _coalesce(self, values: list[exp.Expr], aspect: Aspect) -> Formula:
        holds = Aspect.TRUE if aspect in (Aspect.TRUE, Aspect.NOT_FALSE) else Aspect.FALSE
        alternatives: list[Formula] = []
        passed: list[Formula] = []
        for value in values:
            alternatives.append(every((*passed, self.formula(value, holds))))
            passed += [self.formula(value, Aspect.NOT_TRUE), self.formula(value, Aspect.NOT_FALSE)]
        if aspect in (Aspect.NOT_TRUE, Aspect.NOT_FALSE):
            alternatives.append(every(passed))
        return some(alternatives)

    def _null_safe(self, node: exp.Expr, aspect: Aspect) -> Formula:
        wanted_equal = isinstance(node, exp.NullSafeEQ) is (aspect in (Aspect.TRUE, Aspect.NOT_FALSE))
        return self._comparison("=", node.this, node.expression, Aspect.TRUE if wanted_equal else Aspect.NOT_TRUE)


_COMPARISONS: Final = {operator: kind for kind, operator in OPERATORS.items()}


def _static(condition: exp.Expr, aspect: Aspect) -> Formula:
    if isinstance(condition, exp.Boolean):
        truth = bool(condition.this) is (aspect in (Aspect.TRUE, Aspect.NOT_FALSE))
        return Every(()) if truth else Some(())
    if isinstance(condition, exp.Null):
        return Every(()) if aspect in (Aspect.NOT_TRUE, Aspect.NOT_FALSE) else Some(())
    if isinstance(condition, exp.Connector):
        condition = exp.paren(condition)
    match aspect:
        case Aspect.TRUE:
            return Static(condition.unnest() if isinstance(condition.unnest(), exp.And) else condition)
        case Aspect.FALSE:
            return Static(exp.not_(condition))
        case Aspect.NOT_TRUE:
            return Static(exp.not_(exp.paren(condition).is_(exp.true())))
        case Aspect.NOT_FALSE:
            return Static(exp.not_(exp.paren(condition).is_(exp.false())))


def _quantified(blocks: tuple[Block, ...], *, present: bool) -> Formula:
    return Present(blocks) if present else Absent(blocks)
