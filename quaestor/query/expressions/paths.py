"""Field paths and variables: `"$a.b"`, `"$$name"`, `"$$name.a.b"`.

Unlike a filter's paths, an expression's path never takes a number for an array index; through an array it collects the
values of the elements that are documents, one level deep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bson import DBRef

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.bson_order import MISSING
from quaestor.query.expressions.nodes import (
    ROOT_SLOT,
    WHOLE_DOCUMENT,
    Compiled,
    Evaluate,
    Scope,
    check_variable_name,
    constant,
)

_MAX_DEPTH: Final = 200
_DBREF_FIELDS: Final = frozenset({"$id", "$ref", "$db"})
_REFUSED_VARIABLES: Final[Mapping[str, str]] = {
    "NOW": "$$NOW changes without any write",
    "CLUSTER_TIME": "$$CLUSTER_TIME changes without any write",
    "JS_SCOPE": "$$JS_SCOPE belongs to server-side scripts",
    "IS_MR": "$$IS_MR belongs to mapReduce",
    "SEARCH_META": "$$SEARCH_META belongs to $search",
    "USER_ROLES": "$$USER_ROLES depends on the user of the request",
}


def check_field_name(name: str) -> None:
    """Check a name for an object expression or a path. Raises MalformedQueryError."""
    if not name:
        raise MalformedQueryError("FieldPath field names may not be empty strings.")
    if name.startswith("$") and name not in _DBREF_FIELDS:
        raise MalformedQueryError(
            "FieldPath field names may not start with '$'. Consider using $getField or $setField."
        )
    if "\0" in name:
        raise MalformedQueryError("FieldPath field names may not contain '\\0'.")
    if "." in name:
        raise MalformedQueryError("FieldPath field names may not contain '.'. Consider using $getField or $setField.")


def split_path(path: str) -> tuple[str, ...]:
    """Return the field names of a dotted path. Raises MalformedQueryError."""
    if not path:
        raise MalformedQueryError("FieldPath cannot be constructed with empty string")
    if path.endswith("."):
        raise MalformedQueryError("FieldPath must not end with a '.'.")
    names = tuple(path.split("."))
    if len(names) > _MAX_DEPTH:
        raise MalformedQueryError(f"FieldPath is too long: {len(names)} fields, at most {_MAX_DEPTH}")
    for name in names:
        check_field_name(name)
    return names


def compile_path(text: str, scope: Scope) -> Compiled:
    """Compile a string that starts with a dollar sign."""
    if text == "$":
        raise MalformedQueryError("'$' by itself is not a valid FieldPath")
    if text.startswith("$$"):
        variable, _, path = text[2:].partition(".")
        if text.endswith("."):
            raise MalformedQueryError("FieldPath must not end with a '.'.")
        return _compile_variable(variable, split_path(path) if path else (), scope)
    return _compile_variable("CURRENT", split_path(text[1:]), scope)


def current_document(scope: Scope) -> Compiled:
    """Compile `$$CURRENT`."""
    return _compile_variable("CURRENT", (), scope)


def _compile_variable(variable: str, names: tuple[str, ...], scope: Scope) -> Compiled:
    if variable == "REMOVE" and variable not in scope.variables:
        return constant(MISSING)
    slot = scope.variables.get(variable)
    if slot is None:
        _refuse_variable(variable)
        raise MalformedQueryError(f"Use of undefined variable: {variable}")
    if slot == ROOT_SLOT:
        scope.build.paths.add(".".join(names) if names else WHOLE_DOCUMENT)
    return Compiled(_reader(slot, names))


def _refuse_variable(variable: str) -> None:
    if variable in _REFUSED_VARIABLES:
        raise UnsupportedQueryError(_REFUSED_VARIABLES[variable])
    if not ("A" <= variable[:1] <= "Z"):
        check_variable_name(variable)


def _reader(slot: int, names: tuple[str, ...]) -> Evaluate:
    if not names:
        return lambda frame: frame[slot]
    if len(names) > 1:
        return lambda frame: value_at(frame[slot], names)
    only = names[0]

    def read(frame: list[Any]) -> Any:
        value = frame[slot]
        if isinstance(value, dict):
            return value.get(only, MISSING)
        return value_at(value, names)

    return read


def value_at(value: Any, names: Sequence[str]) -> Any:
    """Return the value that the path leads to; MISSING if it leads nowhere. O(depth x elements of the arrays on the way)."""
    for position, name in enumerate(names):
        if isinstance(value, DBRef):
            value = value.as_doc()
        if isinstance(value, Mapping):
            value = value.get(name, MISSING)
        elif isinstance(value, list | tuple):
            return _collected(value, names[position:])
        else:
            return MISSING
    return value


def _collected(array: Sequence[Any], names: Sequence[str]) -> list[Any]:
    reached = (value_at(member, names) for member in array if isinstance(member, Mapping | DBRef))
    return [value for value in reached if value is not MISSING]
