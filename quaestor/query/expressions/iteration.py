"""`$let`, `$map`, `$filter`, `$reduce`: expressions that bind variables. mongod folds none of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import members_of
from quaestor.query.expressions.kinds import is_array, is_nullish, is_string, kind_of, none_for_missing, truthy
from quaestor.query.expressions.nodes import Compiled, Frame, Operator, Scope, check_variable_name
from quaestor.query.expressions.numeric import as_int32


def _let(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(name, operand, required=("vars", "in"))
    written = members["vars"]
    if kind_of(written) != "object" and written != []:
        raise MalformedQueryError(f"invalid parameter: expected an object (vars), found: {kind_of(written)}")
    for variable in written:
        check_variable_name(variable)
    if not written:
        return scope.compile(members["in"])
    values = [scope.compile(value).evaluate for value in written.values()]
    inner, slots = scope.binding(list(written))
    body = inner.compile(members["in"]).evaluate
    assignments = list(zip(slots, values, strict=True))

    def evaluate(frame: Frame) -> Any:
        for slot, value in assignments:
            frame[slot] = value(frame)
        return body(frame)

    return Compiled(evaluate)


def _element_variable(members: Mapping[str, Any]) -> str:
    variable = members.get("as", "this")
    if not is_string(variable):
        raise MalformedQueryError(f"'as' names a variable, found: {kind_of(variable)}")
    check_variable_name(variable)
    return variable


def _map(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(name, operand, required=("input", "in"), optional=("as",))
    source = scope.compile(members["input"]).evaluate
    inner, (slot,) = scope.binding([_element_variable(members)])
    body = inner.compile(members["in"]).evaluate

    def evaluate(frame: Frame) -> Any:
        array = source(frame)
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"input to $map must be an array not {kind_of(array)}")
        mapped = []
        for member in array:
            frame[slot] = member
            mapped.append(none_for_missing(body(frame)))
        return mapped

    return Compiled(evaluate)


def _filter(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(name, operand, required=("input", "cond"), optional=("as", "limit"))
    source = scope.compile(members["input"]).evaluate
    inner, (slot,) = scope.binding([_element_variable(members)])
    condition = inner.compile(members["cond"]).evaluate
    limit_of = scope.compile(members["limit"]).evaluate if "limit" in members else None

    def evaluate(frame: Frame) -> Any:
        array = source(frame)
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"input to $filter must be an array not {kind_of(array)}")
        limit = _limit(limit_of(frame)) if limit_of is not None and array else None
        kept: list[Any] = []
        for member in array:
            frame[slot] = member
            if truthy(condition(frame)):
                kept.append(member)
                if len(kept) == limit:
                    break
        return kept

    return Compiled(evaluate)


def _limit(value: Any) -> int | None:
    if is_nullish(value):
        return None
    limit = as_int32(value)
    if limit is None:
        raise ExpressionError(f"$filter: limit must be represented as a 32-bit integral value: {value}")
    if limit <= 0:
        raise ExpressionError(f"$filter: limit must be greater than 0: {limit}")
    return limit


def _reduce(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("input", "initialValue", "in"),
        missing="{name} requires '{field}' to be specified",
        unknown="{name} found an unknown argument: {field}",
        not_object="{name} requires an object as an argument, found: {kind}",
    )
    source = scope.compile(members["input"]).evaluate
    initial = scope.compile(members["initialValue"]).evaluate
    inner, (this_slot, value_slot) = scope.binding(["this", "value"])
    body = inner.compile(members["in"]).evaluate

    def evaluate(frame: Frame) -> Any:
        array = source(frame)
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"$reduce requires that 'input' be an array, found: {kind_of(array)}")
        value = initial(frame)
        for member in array:
            frame[this_slot] = member
            frame[value_slot] = value
            value = body(frame)
        return value

    return Compiled(evaluate)


OPERATORS: Final[Mapping[str, Operator]] = {"$let": _let, "$map": _map, "$filter": _filter, "$reduce": _reduce}
