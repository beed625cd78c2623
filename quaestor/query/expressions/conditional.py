"""`$cond`, `$ifNull`, `$switch`: only the chosen branch is evaluated.

mongod's optimiser decides constant tests beforehand, and folds the branches that it keeps. A constant that fails in a kept branch
fails the query, although no document would ever reach it. Dropped branches of a `$switch` are not folded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import arguments_of, check_exactly, members_of
from quaestor.query.expressions.kinds import is_nullish, kind_of, truthy
from quaestor.query.expressions.nodes import Compiled, Frame, Operator, Scope, constant


def _cond(name: str, operand: Any, scope: Scope) -> Compiled:
    if kind_of(operand) == "object":
        members = members_of(name, operand, required=("if", "then", "else"))
        operands = [scope.compile(members[field]) for field in ("if", "then", "else")]
    else:
        operands = list(check_exactly(name, arguments_of(operand, scope), 3))
    test, then, otherwise = operands
    if test.is_constant:
        return then if truthy(test.constant) else otherwise
    test_of, then_of, otherwise_of = test.evaluate, then.evaluate, otherwise.evaluate
    return Compiled(lambda frame: then_of(frame) if truthy(test_of(frame)) else otherwise_of(frame))


def _if_null(name: str, operand: Any, scope: Scope) -> Compiled:
    operands = arguments_of(operand, scope)
    if len(operands) < 2:
        raise MalformedQueryError(f"$ifNull needs at least two arguments, had: {len(operands)}")
    tried, last = [], operands[-1]
    for part in operands[:-1]:
        if part.is_constant and is_nullish(part.constant):
            continue
        if part.is_constant:
            last = part
            break
        tried.append(part.evaluate)
    if not tried:
        return last
    last_of = last.evaluate

    def evaluate(frame: Frame) -> Any:
        for attempt in tried:
            value = attempt(frame)
            if not is_nullish(value):
                return value
        return last_of(frame)

    return Compiled(evaluate)


@dataclass(frozen=True, slots=True)
class _Branch:
    """failures: the build's failures before the case, before the then and after it."""

    case: Compiled
    then: Compiled
    failures: tuple[int, int, int]


def _switch(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=(),
        optional=("branches", "default"),
        unknown="$switch found an unknown argument: {field}",
        not_object="$switch requires an object as an argument, found: {kind}",
    )
    default = scope.compile(members["default"]) if "default" in members else None
    branches, decided = _reachable(_branches(members.get("branches", []), scope), scope)
    if decided is not None:
        default = decided
    if branches:
        return Compiled(_decision(branches, default))
    if default is None:
        scope.build.failures.append(
            ExpressionError("Cannot execute a switch statement where all the cases evaluate to false without a default")
        )
        return constant(None)
    return default


def _branches(written: Any, scope: Scope) -> list[_Branch]:
    if kind_of(written) != "array":
        raise MalformedQueryError(f"$switch expected an array for 'branches', found: {kind_of(written)}")
    if not written:
        raise MalformedQueryError("$switch requires at least one branch")
    branches = []
    failures = scope.build.failures
    for branch in written:
        members = members_of(
            "$switch",
            branch,
            required=("case", "then"),
            missing="$switch requires each branch have a '{field}' expression",
            unknown="$switch found an unknown argument to a branch: {field}",
            not_object="$switch expected each branch to be an object, found: {kind}",
        )
        before = len(failures)
        case = scope.compile(members["case"])
        between = len(failures)
        then = scope.compile(members["then"])
        branches.append(_Branch(case, then, (before, between, len(failures))))
    return branches


def _reachable(branches: list[_Branch], scope: Scope) -> tuple[list[_Branch], Compiled | None]:
    """Return the branches that depend on the document, and the default if a constantly true case decides it."""
    kept: list[_Branch] = []
    decided = None
    dropped: list[tuple[int, int]] = []
    for position, branch in enumerate(branches):
        if not branch.case.is_constant:
            kept.append(branch)
        elif truthy(branch.case.constant):
            decided = branch.then
            dropped += [(later.failures[0], later.failures[2]) for later in branches[position + 1 :]]
            break
        else:
            dropped.append(branch.failures[1:])
    for first, end in reversed(dropped):
        del scope.build.failures[first:end]
    return kept, decided


def _decision(branches: list[_Branch], default: Compiled | None) -> Any:
    pairs = tuple((branch.case.evaluate, branch.then.evaluate) for branch in branches)
    otherwise = default.evaluate if default is not None else None

    def evaluate(frame: Frame) -> Any:
        for case, then in pairs:
            if truthy(case(frame)):
                return then(frame)
        if otherwise is None:
            raise ExpressionError(
                "$switch could not find a matching branch for an input, and no default was specified."
            )
        return otherwise(frame)

    return evaluate


OPERATORS: Final[Mapping[str, Operator]] = {"$cond": _cond, "$ifNull": _if_null, "$switch": _switch}
