"""Strict JSON: Extended JSON from strangers, bounded in size and depth, without ambiguity; every refusal names its place.

Values that Python's parser tolerates are refused here. A repeated name is refused because two readers may each believe another
one; so are NaN and Infinity, numbers beyond double, lone surrogates, names with a null byte. An object whose only name is that
of an Extended JSON type becomes that type; every other object stays as it is, even if its names begin with `$`.

https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from bson import Code, json_util
from bson.binary import UuidRepresentation
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError

OPTIONS: Final = json_util.JSONOptions(
    json_mode=json_util.JSONMode.RELAXED,
    tz_aware=True,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
_TYPES: Final = frozenset(
    {
        "$oid", "$date", "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$uuid", "$binary", "$timestamp",
        "$regularExpression", "$minKey", "$maxKey", "$code",
    }
)  # fmt: skip
_NESTING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_LARGEST: Final = 2**63
_Pointer = tuple[str | int, ...]


class JsonError(ValueError):
    """Refusal of a JSON text, with its place.

    reason: a message without the place.
    position: offset in characters.
    pointer: RFC 6901; None if the text is not JSON at all.
    """

    def __init__(self, reason: str, position: int, pointer: str | None = None) -> None:
        super().__init__(f"{reason} (at character {position})")
        self.reason = reason
        self.position = position
        self.pointer = pointer


class _Pairs(tuple[tuple[str, Any], ...]):
    """An object as it stands in the text."""

    __slots__ = ()


def parse(text: str, *, depth: int) -> Any:
    """Return the value in a text, with BSON types. Raises JsonError. O(size).

    depth: deepest nesting of objects and arrays.
    """
    _require_depth(text, depth)
    try:
        raw = json.loads(
            text, object_pairs_hook=_Pairs, parse_constant=_refuse_constant, parse_float=_number, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.pos) from error
    return _Converter(text).value(raw, ())


def dumps(value: Any) -> bytes:
    """Return relaxed Extended JSON as UTF-8, without spaces.

    Most values have no type of their own below them. The encoder in C then needs no conversion first.
    """
    if not _holds_code(value):
        with suppress(ValueError):  # a number that JSON does not know
            return _ENCODER.encode(value).encode()
    return json_util.dumps(value, json_options=OPTIONS, ensure_ascii=False, separators=(",", ":")).encode()


def _holds_code(value: Any) -> bool:
    """Whether a value holds JavaScript, which the encoder would take for text."""
    if isinstance(value, str):
        return isinstance(value, Code)
    if isinstance(value, dict):
        return any(map(_holds_code, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_code, value))


def _typed(value: Any) -> Any:
    """Return a value of BSON as the encoder knows it. Raises ValueError for what only the general way converts."""
    if hasattr(value, "items") or (hasattr(value, "__iter__") and not isinstance(value, bytes)):
        raise ValueError("a collection of another kind")
    return json_util.default(value, OPTIONS)


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_typed)


def refusal(text: str, reason: str, pointer: _Pointer) -> JsonError:
    """Return an error about one place in a text that is valid JSON."""
    return JsonError(reason, locate(text, pointer), as_pointer(pointer))


def as_pointer(pointer: _Pointer) -> str:
    """Return a place as an RFC 6901 pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in pointer)


def locate(text: str, pointer: _Pointer) -> int:
    """Return the offset of the value that a pointer leads to, or of its name if it has one. The text is valid JSON."""
    at = found_at = _skip(text, 0)
    for part in pointer:
        at = _skip(text, at + 1)
        index = 0
        while text[at] not in "]}":
            here = at
            name: Any = index
            if isinstance(part, str):
                name, at = _decoder.raw_decode(text, at)
                at = _skip(text, _skip(text, at) + 1)
            if name == part:
                found_at = here
                break
            _, at = _decoder.raw_decode(text, at)
            at = _skip(text, at)
            if text[at] == ",":
                at = _skip(text, at + 1)
            index += 1
        else:
            break
    return found_at


_decoder = json.JSONDecoder()


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _require_depth(text: str, deepest: int) -> None:
    """Check the depth before the parser runs, because only the stack bounds the parser's recursion."""
    depth = 0
    for match in _NESTING.finditer(text):
        character = match.group()
        if character in "[{":
            depth += 1
            if depth > deepest:
                raise JsonError(f"nested deeper than {deepest} levels", match.start())
        elif character in "]}":
            depth -= 1


class _TooLarge(float):
    """A number that no BSON type holds; the converter finds it again, with its place."""


def _refuse_constant(name: str) -> float:
    return _TooLarge("nan")


def _number(text: str) -> float:
    value = float(text)
    return _TooLarge("nan") if value in (float("inf"), float("-inf")) else value


def _integer(text: str) -> int | float:
    if len(text) > 20:
        return _TooLarge("nan")
    value = int(text)
    return value if -_LARGEST <= value < _LARGEST else _TooLarge("nan")


class _Converter:
    """Converter from pairs to values, with the pointer to each."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, raw: Any, pointer: _Pointer) -> Any:
        if isinstance(raw, _Pairs):
            return self._object(raw, pointer)
        if isinstance(raw, list):
            return [self.value(member, (*pointer, index)) for index, member in enumerate(raw)]
        if isinstance(raw, str):
            self._require_text(raw, pointer)
        elif isinstance(raw, _TooLarge):
            raise refusal(self._text, "not a number that a record can hold", pointer)
        return raw

    def _object(self, raw: _Pairs, pointer: _Pointer) -> Any:
        converted: dict[str, Any] = {}
        for name, member in raw:
            below = (*pointer, name)
            if name in converted:
                raise refusal(self._text, f"the name {name!r} is given twice", below)
            if "\0" in name:
                raise refusal(self._text, "a name contains a null byte", below)
            self._require_text(name, below)
            converted[name] = self.value(member, below)
        if len(converted) == 1 and next(iter(converted)) in _TYPES:
            return self._typed(converted, pointer)
        return converted

    def _typed(self, document: Mapping[str, Any], pointer: _Pointer) -> Any:
        try:
            return json_util.object_hook(document, OPTIONS)
        except (BSONError, ValueError, TypeError, ArithmeticError, KeyError, AttributeError) as error:
            (name,) = document
            raise refusal(self._text, f"not a valid {name}: {error}", pointer) from error

    def _require_text(self, text: str, pointer: _Pointer) -> None:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise refusal(self._text, "half of a surrogate pair", pointer) from error


def walk(value: Any, visit: Callable[[Any, _Pointer], None], pointer: _Pointer = ()) -> None:
    """Call visit on the value and on everything below it that is an object's or an array's member, parents first."""
    visit(value, pointer)
    if isinstance(value, Mapping):
        for name, member in value.items():
            walk(member, visit, (*pointer, name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            walk(member, visit, (*pointer, index))
