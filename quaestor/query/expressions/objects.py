"""Documents: merging, splitting into pairs, and single fields whose names a path cannot express.

mongod does not optimise the operands of `$getField`, `$setField` and `$unsetField`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.bson_order import MISSING
from quaestor.query.expressions.accumulators import elements_or_operands
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import fixed, members_of, variadic
from quaestor.query.expressions.kinds import as_mapping, is_array, is_nullish, is_string, kind_of
from quaestor.query.expressions.nodes import Compiled, Operator, Scope, call
from quaestor.query.expressions.paths import current_document


def _merge_objects(values: Iterable[Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for value in elements_or_operands(values):
        if is_nullish(value):
            continue
        if kind_of(value) != "object":
            raise ExpressionError(f"$mergeObjects requires object inputs, but input is of type {kind_of(value)}")
        merged.update(as_mapping(value))
    return merged


def _object_to_array(value: Any) -> Any:
    if is_nullish(value):
        return None
    if kind_of(value) != "object":
        raise ExpressionError(f"$objectToArray requires a document input, found: {kind_of(value)}")
    return [{"k": name, "v": member} for name, member in as_mapping(value).items()]


def _array_to_object(array: Any) -> Any:
    if is_nullish(array):
        return None
    if not is_array(array):
        raise ExpressionError(f"$arrayToObject requires an array input, found: {kind_of(array)}")
    fields: dict[str, Any] = {}
    shape = kind_of(array[0]) if array else "array"
    if shape not in ("array", "object"):
        raise ExpressionError(f"Unrecognised input type format for $arrayToObject: {shape}")
    for member in array:
        if kind_of(member) != shape:
            raise ExpressionError(
                "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. "
                f"{shape} was detected, now found: {kind_of(member)}"
            )
        name, value = _pair_of_array(member) if shape == "array" else _pair_of_object(as_mapping(member))
        if "\0" in name:
            raise ExpressionError("Key field cannot contain an embedded null byte")
        fields[name] = value
    return fields


def _pair_of_array(member: Any) -> tuple[str, Any]:
    if len(member) != 2:
        raise ExpressionError(f"$arrayToObject requires an array of size 2 arrays, found array of size: {len(member)}")
    if not is_string(member[0]):
        raise ExpressionError(
            "$arrayToObject requires an array of key-value pairs, where the key must be of type string. "
            f"Found key type: {kind_of(member[0])}"
        )
    return member[0], member[1]


def _pair_of_object(member: Mapping[str, Any]) -> tuple[str, Any]:
    if len(member) != 2:
        raise ExpressionError(
            f"$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{len(member)}"
        )
    if "k" not in member or "v" not in member:
        raise ExpressionError("$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys")
    if not is_string(member["k"]):
        raise ExpressionError(
            "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type string. "
            f"Found type: {kind_of(member['k'])}"
        )
    return member["k"], member["v"]


def _constant_field(name: str, written: Any, scope: Scope) -> str:
    """Return the name of the field, written as a string or a literal."""
    if is_string(written) and written.startswith("$"):
        raise MalformedQueryError(
            f"'{written}' is a field path reference which is not allowed in this context. "
            f"Did you mean {{$literal: '{written}'}}?"
        )
    is_literal = isinstance(written, dict) and len(written) == 1 and next(iter(written)) in ("$literal", "$const")
    if isinstance(written, list) or (isinstance(written, dict) and not is_literal):
        scope.compile(written)
        raise MalformedQueryError(f"{name} requires 'field' to evaluate to a constant, but got a non-constant argument")
    field = next(iter(written.values())) if is_literal else written
    if not is_string(field):
        raise MalformedQueryError(f"{name} requires 'field' to evaluate to type String, but got {kind_of(field)}")
    return field


def _field_members(name: str, operand: Any, fields: tuple[str, ...]) -> Mapping[str, Any]:
    return members_of(
        name,
        operand,
        required=fields,
        missing="{name} requires '{field}' to be specified",
        unknown="{name} found an unknown argument: {field}",
    )


def _get_field(name: str, operand: Any, scope: Scope) -> Compiled:
    is_options = isinstance(operand, dict) and not next(iter(operand), "").startswith("$")
    if is_options:
        members = _field_members(name, operand, ("field", "input"))
        field = _constant_field(name, members["field"], scope)
        source = scope.unoptimised().compile(members["input"])
    else:
        field = _constant_field(name, operand, scope)
        source = current_document(scope)

    def get_field(value: Any) -> Any:
        if kind_of(value) == "object":
            return as_mapping(value).get(field, MISSING)
        return None if value is None else MISSING

    return call(get_field, [source], scope, foldable=False)


def _set_field(name: str, operand: Any, scope: Scope) -> Compiled:
    required = ("field", "input") if name == "$unsetField" else ("field", "input", "value")
    members = _field_members(name, operand, required)
    field = _constant_field(name, members["field"], scope)
    value = members["value"] if name == "$setField" else "$$REMOVE"

    def set_field(source: Any, new: Any) -> Any:
        if is_nullish(source):
            return None
        if kind_of(source) != "object":
            raise ExpressionError(f"{name} requires 'input' to evaluate to type Object")
        fields = dict(as_mapping(source))
        if new is MISSING:
            fields.pop(field, None)
        else:
            fields[field] = new
        return fields

    inner = scope.unoptimised()
    return call(set_field, [inner.compile(members["input"]), inner.compile(value)], scope, foldable=False, deciding=1)


OPERATORS: Final[Mapping[str, Operator]] = {
    "$mergeObjects": variadic(_merge_objects),
    "$objectToArray": fixed(1, _object_to_array),
    "$arrayToObject": fixed(1, _array_to_object),
    "$getField": _get_field,
    "$setField": _set_field,
    "$unsetField": _set_field,
}
