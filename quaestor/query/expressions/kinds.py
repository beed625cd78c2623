"""The BSON type of a value as pymongo decodes it, under the names that `$type` returns.

Types that pymongo decodes alike are equal here: undefined is decoded as None, a symbol as str, a DBPointer as DBRef.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, TypeGuard

from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from quaestor.query.bson_order import MISSING, Missing
from quaestor.query.bson_types import BSON_TYPES

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

NUMERIC: Final = frozenset({"int", "long", "double", "decimal"})

TYPE_CODES: Final[Mapping[str, int]] = {**BSON_TYPES, "missing": 0}
"""BSON type numbers by name; "missing" has the number that BSON uses for the end of a document."""


class _KindTable(dict[type, str]):
    """Type name by exact class; a subclass is looked up once through its bases."""

    def __missing__(self, kind: type) -> str:
        for base in kind.__mro__:
            if base in self:
                self[kind] = self[base]
                return self[kind]
        if issubclass(kind, Mapping):
            self[kind] = "object"
            return "object"
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not a BSON type; pass what pymongo decodes")


_KINDS: Final = _KindTable(
    {
        Missing: "missing",
        type(None): "null",
        bool: "bool",
        Int64: "long",
        float: "double",
        Decimal128: "decimal",
        str: "string",
        dict: "object",
        DBRef: "object",
        list: "array",
        tuple: "array",
        bytes: "binData",
        Binary: "binData",
        uuid.UUID: "binData",
        ObjectId: "objectId",
        datetime.datetime: "date",
        DatetimeMS: "date",
        Timestamp: "timestamp",
        Regex: "regex",
        re.Pattern: "regex",
        MinKey: "minKey",
        MaxKey: "maxKey",
    }
)


def kind_of(value: Any) -> str:
    """Return the name of the value's BSON type; "missing" for MISSING. A plain int is a "long" only where it needs 64 bits.

    Raises:
        TypeError: not a type that pymongo encodes.
    """
    kind = type(value)
    if kind is int:
        return "int" if INT32_MIN <= value <= INT32_MAX else "long"
    if kind is Code:
        return "javascript" if value.scope is None else "javascriptWithScope"
    return _KINDS[kind]


def is_nullish(value: Any) -> bool:
    """Whether a value is null or missing, for which most operators return null."""
    return value is None or value is MISSING


def is_string(value: Any) -> TypeGuard[str]:
    """Whether a value is a string; not code, which pymongo decodes to a subclass of str."""
    return isinstance(value, str) and not isinstance(value, Code)


def is_number(value: Any) -> bool:
    return kind_of(value) in NUMERIC


def truthy(value: Any) -> bool:
    """Coerce to bool like mongod: false, null, missing and every zero are false, all else (NaN too) is true."""
    if value is None or value is MISSING or value is False:
        return False
    if isinstance(value, int | float):
        return value != 0
    if isinstance(value, Decimal128):
        return value.to_decimal() != Decimal(0)
    return True


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the fields of a value whose kind is "object"."""
    if isinstance(value, DBRef):
        fields: Mapping[str, Any] = value.as_doc()
        return fields
    members: Mapping[str, Any] = value
    return members


def is_array(value: Any) -> bool:
    return isinstance(value, list | tuple)


def none_for_missing(value: Any) -> Any:
    """Return null for missing, because an array cannot hold missing."""
    return None if value is MISSING else value
