"""Strings: joining, cutting, measuring, searching, replacing, splitting.

Case is changed for ASCII letters alone. The `Bytes` operators count UTF-8 bytes, the `CP` operators code points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from quaestor.errors import UnsupportedQueryError
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import associative, fixed, members_of, ranged
from quaestor.query.expressions.kinds import NUMERIC, is_nullish, is_string, kind_of
from quaestor.query.expressions.nodes import Compiled, Operator, Scope, call
from quaestor.query.expressions.numeric import as_int32, to_long
from quaestor.query.expressions.text import coerced_text

_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _concat(values: Iterable[Any]) -> Any:
    parts: list[str] = []
    for value in values:
        if is_nullish(value):
            return None
        if not is_string(value):
            raise ExpressionError(f"$concat only supports strings, not {kind_of(value)}")
        parts.append(value)
    return "".join(parts)


def _substr_bytes(name: str, text: Any, start: Any, length: Any) -> str:
    data = coerced_text(text).encode()
    for argument, role in ((start, "starting index"), (length, "length")):
        if kind_of(argument) not in NUMERIC:
            raise ExpressionError(f"{name}:  {role} must be a numeric type (is BSON type {kind_of(argument)})")
    first, count = to_long(start), to_long(length)
    if first < 0:
        raise ExpressionError(f"{name}:  starting index must be non-negative (got: {first})")
    end = len(data) if count < 0 else min(len(data), first + count)
    if first < len(data) and _continues(data[first]):
        raise ExpressionError(f"{name}:  Invalid range, starting index is a UTF-8 continuation byte.")
    if end < len(data) and _continues(data[end]):
        raise ExpressionError(f"{name}:  Invalid range, ending index is in the middle of a UTF-8 character.")
    return data[first:end].decode()


def _continues(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _substr_cp(text: Any, start: Any, length: Any) -> str:
    read = coerced_text(text)
    first, count = _int32("starting index", start), _int32("length", length)
    if count < 0:
        raise ExpressionError("$substrCP: length must be a nonnegative integer.")
    if first < 0:
        raise ExpressionError("$substrCP: the starting index must be nonnegative integer.")
    return read[first : first + count]


def _int32(role: str, value: Any) -> int:
    if kind_of(value) not in NUMERIC:
        raise ExpressionError(f"$substrCP: {role} must be a numeric type (is BSON type {kind_of(value)})")
    whole = as_int32(value)
    if whole is None:
        raise ExpressionError(f"$substrCP: {role} cannot be represented as a 32-bit integral value: {value}")
    return whole


def _strcasecmp(left: Any, right: Any) -> int:
    upper = [coerced_text(side).translate(_UPPER).encode() for side in (left, right)]
    return (upper[0] > upper[1]) - (upper[0] < upper[1])


def _length(measure: Callable[[str], int]) -> Operator:
    def length(name: str, value: Any) -> int:
        if not is_string(value):
            raise ExpressionError(f"{name} requires a string argument, found: {kind_of(value)}")
        return measure(value)

    return fixed(1, length, named=True)


def _index_of(search: Callable[[str, str, int, int | None], int]) -> Operator:
    def index_of(name: str, text: Any, token: Any, *bounds: Any) -> Any:
        if is_nullish(text):
            return None
        for value, position in ((text, "first"), (token, "second")):
            if not is_string(value):
                raise ExpressionError(f"{name} requires a string as the {position} argument, found: {kind_of(value)}")
        return search(text, token, *index_bounds(name, bounds))

    return ranged(2, 4, index_of, named=True, deciding=1)


def index_bounds(name: str, bounds: tuple[Any, ...]) -> tuple[int, int | None]:
    """Return start and end of an index search, from its operands.

    Raises ExpressionError unless they are whole numbers from 0 to 2**31-1.
    """
    roles = ("starting", "ending")
    first, *last = (_index_bound(name, value, role) for value, role in zip(bounds or (0,), roles, strict=False))
    return first, last[0] if last else None


def _index_bound(name: str, value: Any, role: str) -> int:
    bound = as_int32(value)
    if bound is None:
        raise ExpressionError(f"{name} requires an integral {role} index, found a value of type: {kind_of(value)}")
    if bound < 0:
        raise ExpressionError(f"{name} requires a nonnegative {role} index, found: {bound}")
    return bound


def _find_bytes(text: str, token: str, start: int, end: int | None) -> int:
    data = text.encode()
    return -1 if start > len(data) else data.find(token.encode(), start, len(data) if end is None else end)


def _find_code_points(text: str, token: str, start: int, end: int | None) -> int:
    if not text and not token and start == 0:
        return 0
    position = text.find(token, start)
    return position if position < min(len(text), len(text) if end is None else end) else -1


def _split(text: Any, separator: Any) -> Any:
    if is_nullish(text) or is_nullish(separator):
        return None
    for value, position in ((text, "first"), (separator, "second")):
        if not is_string(value):
            raise ExpressionError(
                f"$split requires an expression that evaluates to a string as a {position} argument, "
                f"found: {kind_of(value)}"
            )
    if not separator:
        raise ExpressionError("$split requires a non-empty separator")
    return text.split(separator)


def _replace(times: int) -> Operator:
    """Return a replacing operator. times: number of replaced occurrences, -1 for all."""

    def replace(name: str, text: Any, find: Any, replacement: Any) -> Any:
        for value, role in ((text, "input"), (find, "find"), (replacement, "replacement")):
            if not is_string(value) and not is_nullish(value):
                raise ExpressionError(f"{name} requires that '{role}' be a string, found: {value}")
        if is_nullish(text) or is_nullish(find) or is_nullish(replacement):
            return None
        if not find and times < 0 and not text.isascii():
            raise UnsupportedQueryError("$replaceAll of the empty string splits characters into bytes")
        return text.replace(find, replacement, times)

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        members = required_members(name, operand, ("input", "find", "replacement"), scope)
        return call(partial(replace, name), members, scope, foldable=False)

    return build


def required_members(name: str, operand: Any, fields: tuple[str, ...], scope: Scope) -> list[Compiled]:
    """Compile named arguments that are all required."""
    written = members_of(
        name,
        operand,
        required=fields,
        missing="{name} requires '{field}' to be specified",
        unknown="{name} found an unknown argument: {field}",
        not_object="{name} requires an object as an argument, found: {kind}",
    )
    return [scope.compile(written[field]) for field in fields]


OPERATORS: Final[Mapping[str, Operator]] = {
    "$concat": associative(_concat, commutative=False),
    "$substr": fixed(3, _substr_bytes, named=True),
    "$substrBytes": fixed(3, _substr_bytes, named=True),
    "$substrCP": fixed(3, _substr_cp),
    "$toLower": fixed(1, lambda value: coerced_text(value).translate(_LOWER)),
    "$toUpper": fixed(1, lambda value: coerced_text(value).translate(_UPPER)),
    "$strcasecmp": fixed(2, _strcasecmp),
    "$strLenBytes": _length(lambda value: len(value.encode())),
    "$strLenCP": _length(len),
    "$indexOfBytes": _index_of(_find_bytes),
    "$indexOfCP": _index_of(_find_code_points),
    "$split": fixed(2, _split),
    "$replaceOne": _replace(1),
    "$replaceAll": _replace(-1),
}
