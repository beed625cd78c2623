"""Keywords for arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.expressions.kinds import as_mapping, kind_of
from quaestor.query.json_schema import operands
from quaestor.query.json_schema.checks import Check, Context, Keyword, unordered_key


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _size(relation: Callable[[int, int], bool]) -> Keyword:
    def size(keyword: str, value: Any, context: Context) -> Check:
        limit = operands.length(keyword, value)
        return lambda array: not _is_array(array) or relation(len(array), limit)

    return size


def _unique_items(keyword: str, value: Any, context: Context) -> Check | None:
    if not operands.boolean(keyword, value):
        return None
    return lambda array: not _is_array(array) or len({unordered_key(member) for member in array}) == len(array)


def _items(keyword: str, value: Any, context: Context) -> Check:
    """Compile `items`: one schema for every member, or one for each of the first members."""
    if kind_of(value) == "object":
        check = context.compile(as_mapping(value))
        return lambda array: not _is_array(array) or all(check(member) for member in array)
    if kind_of(value) != "array":
        raise MalformedQueryError(f"$jsonSchema keyword 'items' must be an array or an object, not {kind_of(value)}")
    checks = [context.compile(operands.document(keyword, member)) for member in value]
    return lambda array: (
        not _is_array(array) or all(check(member) for check, member in zip(checks, array, strict=False))
    )


def _additional_items(keyword: str, value: Any, context: Context) -> Check | None:
    """Compile `additionalItems`: the schema for members beyond the list in `items`."""
    if kind_of(value) not in ("object", "bool"):
        raise MalformedQueryError(
            f"$jsonSchema keyword 'additionalItems' must be either an object or a boolean, but got a {kind_of(value)}"
        )
    check = None if isinstance(value, bool) else context.compile(as_mapping(value))
    listed = context.schema.get("items")
    if value is True or kind_of(listed) != "array":
        return None
    count = len(listed or ())
    if check is None:
        return lambda array: not _is_array(array) or len(array) <= count
    return lambda array: not _is_array(array) or all(check(member) for member in array[count:])


KEYWORDS: Final[Mapping[str, Keyword]] = {
    "minItems": _size(operator.ge),
    "maxItems": _size(operator.le),
    "uniqueItems": _unique_items,
    "items": _items,
    "additionalItems": _additional_items,
}
