"""MongoDB's total order over BSON values, as keys that Python can compare, bisect and hash.

Source: the manual page "Comparison/Sort Order", and where it is silent the behaviour of mongod 6.0. A key is a
tuple `(bracket, payload)`; keys of different brackets (families of types) compare by bracket alone.

Numbers of all four types compare by mathematical value, so their keys are the Python numbers themselves. Python
compares and hashes int, float and Decimal exactly and consistently. NaN lies below every number. Its key is `(NAN,)`, just
before the numbers' bracket, so an interval over numbers never contains it.

Types that pymongo decodes alike are equal here: undefined is decoded as None, a symbol as str, a DBPointer as DBRef.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

Key = tuple[Any, ...]


class Missing:
    """The type of `MISSING`, the value of an absent field. Never stored, below null in the order."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()

MIN_KEY: Final = -1
NOT_THERE: Final = 0
NULL: Final = 5
NAN: Final = 9
"""Not a bracket: only the first member of NaN's key. `type_bracket` of NaN is NUMBER."""
NUMBER: Final = 10
STRING: Final = 15
OBJECT: Final = 20
ARRAY: Final = 25
BINARY: Final = 30
OBJECT_ID: Final = 35
BOOLEAN: Final = 40
DATE: Final = 45
TIMESTAMP: Final = 47
REGEX: Final = 50
CODE: Final = 60
CODE_WITH_SCOPE: Final = 65
MAX_KEY: Final = 127

_EPOCH = datetime.datetime(1970, 1, 1)
_NO_TIME = datetime.timedelta()
_FLAGS = ((re.I, "i"), (re.L, "l"), (re.M, "m"), (re.S, "s"), (re.U, "u"), (re.X, "x"))


def order_key(value: Any) -> Key:
    """Return the value's place in the BSON order: `order_key(a) < order_key(b)` iff mongod sorts a before b.

    Equal keys (and hashes) mean equal values for `$eq`, whatever the numeric types. O(size of the value).

    Raises:
        TypeError: not a type that pymongo encodes.
    """
    return _KEYS[type(value)](value)


def compare(a: Any, b: Any) -> int:
    """Return -1, 0 or 1 as a sorts before, with or after b."""
    left, right = order_key(a), order_key(b)
    return (left > right) - (left < right)


def type_bracket(value: Any) -> int:
    """Return the family of types within which `$lt` and its kin compare (this module's constants). NaN is in NUMBER."""
    bracket = _BRACKETS[type(value)]
    return CODE_WITH_SCOPE if bracket == CODE and value.scope is not None else bracket


def bracket_of(kind: type) -> int:
    """Return the bracket of every value of a Python type; CODE for code with a scope too. O(1) after the first of its kind."""
    return _BRACKETS[kind]


def is_list(value: Any) -> bool:
    """Whether the value is a BSON array."""
    return bracket_of(type(value)) == ARRAY


def milliseconds(value: datetime.datetime) -> int:
    """Return the number that BSON stores of a datetime: milliseconds since the epoch (naive: UTC), the rest cut off."""
    if value.tzinfo is not None:
        value = value.replace(tzinfo=None) - (value.utcoffset() or _NO_TIME)
    since = value - _EPOCH
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def stored_bytes(value: bytes) -> bytes:
    """Return the content of binary data as BSON stores it: the deprecated subtype 2 repeats the length inside."""
    plain = bytes(value)
    return len(plain).to_bytes(4, "little") + plain if getattr(value, "subtype", 0) == 2 else plain


def regex_flags(flags: int | str) -> str:
    """Return the option letters of a regex value, sorted, as BSON stores them."""
    if isinstance(flags, str):
        return flags
    return "".join(letter for bit, letter in _FLAGS if flags & bit)


def _number_key(value: float) -> Key:
    return (NUMBER, value) if value == value else (NAN,)


def _decimal_key(value: Decimal128) -> Key:
    exact = value.to_decimal()
    if exact.is_nan():
        return (NAN,)
    if exact.is_infinite():
        return (NUMBER, float(exact))
    return (NUMBER, exact)


def _document_key(value: Mapping[str, Any]) -> Key:
    members: list[tuple[int, str, Key]] = []
    for name, member in value.items():
        key = order_key(member)
        members.append((NUMBER if key[0] == NAN else key[0], name, key))
    return (OBJECT, tuple(members))


def _binary_key(value: bytes) -> Key:
    stored = stored_bytes(value)
    return (BINARY, (len(stored), getattr(value, "subtype", 0), stored))


def _code_key(value: Code) -> Key:
    if value.scope is None:
        return (CODE, str(value))
    return (CODE_WITH_SCOPE, (str(value), _document_key(value.scope)))


def _regex_key(value: Any) -> Key:
    pattern = value.pattern
    text = pattern.decode("utf-8", "surrogateescape") if isinstance(pattern, bytes) else pattern
    return (REGEX, (text, regex_flags(value.flags)))


_T = TypeVar("_T")


class _ByType(dict[type, _T]):
    """A value for each exact type; a subclass is looked up once through its bases, a foreign Mapping counts as dict."""

    def __missing__(self, kind: type) -> _T:
        for base in (*kind.__mro__, dict):
            if base in self and (base is not dict or issubclass(kind, Mapping)):
                self[kind] = self[base]
                return self[kind]
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not a BSON type; pass what pymongo decodes")


_KEYS: _ByType[Callable[[Any], Key]] = _ByType(
    {
        MinKey: lambda _: (MIN_KEY,),
        Missing: lambda _: (NOT_THERE,),
        type(None): lambda _: (NULL,),
        int: lambda value: (NUMBER, value),
        Int64: lambda value: (NUMBER, int(value)),
        float: _number_key,
        Decimal128: _decimal_key,
        str: lambda value: (STRING, value),
        dict: _document_key,
        DBRef: lambda value: _document_key(value.as_doc()),
        list: lambda value: (ARRAY, tuple([order_key(member) for member in value])),
        tuple: lambda value: (ARRAY, tuple([order_key(member) for member in value])),
        bytes: _binary_key,
        Binary: _binary_key,
        uuid.UUID: lambda value: _binary_key(Binary.from_uuid(value)),
        ObjectId: lambda value: (OBJECT_ID, value.binary),
        bool: lambda value: (BOOLEAN, value),
        datetime.datetime: lambda value: (DATE, milliseconds(value)),
        DatetimeMS: lambda value: (DATE, int(value)),
        Timestamp: lambda value: (TIMESTAMP, (value.time, value.inc)),
        Regex: _regex_key,
        re.Pattern: _regex_key,
        Code: _code_key,
        MaxKey: lambda _: (MAX_KEY,),
    }
)

_BRACKETS: _ByType[int] = _ByType(
    {
        MinKey: MIN_KEY,
        Missing: NOT_THERE,
        type(None): NULL,
        int: NUMBER,
        float: NUMBER,
        Decimal128: NUMBER,
        str: STRING,
        dict: OBJECT,
        DBRef: OBJECT,
        list: ARRAY,
        tuple: ARRAY,
        bytes: BINARY,
        uuid.UUID: BINARY,
        ObjectId: OBJECT_ID,
        bool: BOOLEAN,
        datetime.datetime: DATE,
        DatetimeMS: DATE,
        Timestamp: TIMESTAMP,
        Regex: REGEX,
        re.Pattern: REGEX,
        Code: CODE,
        MaxKey: MAX_KEY,
    }
)
