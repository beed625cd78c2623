"""Collations: the parts of a filter that still decide its records where strings compare by the rules of a language.

mongod compares by ICU 57, and the order of strings counts as unknown here. Conditions that compare no strings hold as they are.
Equality with a string of printable ASCII is narrowed by properties that every version of ICU shares. Without `shifted` and
`numericOrdering`, the locales below distinguish any two printable ASCII characters. Different letters differ at the primary
level, their case at the tertiary one. A string with any other character may be equal.
https://www.mongodb.com/docs/manual/reference/collation/ and https://unicode.org/reports/tr35/tr35-collation.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import bson

from quaestor.model import Document
from quaestor.query.bson_order import is_list

_WITHOUT_LETTERS: Final = (
    *(int, float, bool, type(None), bytes),
    *(bson.ObjectId, bson.Decimal128, bson.Timestamp, datetime, UUID),
)
"""Types of values that no collation orders."""
_PLAIN_LOCALES: Final = frozenset({"en", "en_US", "de", "es", "fr", "it", "nl", "pt"})
"""Locales whose rules equate no two different ASCII letters."""
_PRINTABLE: Final = re.compile(r"[ -~]*")
_OTHER_CHARACTERS: Final = {"$regex": "[^ -~]"}
_RANGES: Final = frozenset({"$gt", "$gte", "$lt", "$lte"})
_BYTEWISE: Final = frozenset({"$regex", "$options", "$type", "$exists"})
"""Operators that ignore the collation."""
_TERTIARY: Final = 3


def compares_strings(operand: Any) -> bool:
    """Whether a filter or an operand holds a string, so that a collation may matter."""
    if isinstance(operand, Mapping):
        return any(compares_strings(value) for value in operand.values())
    if isinstance(operand, list | tuple):
        return any(compares_strings(value) for value in operand)
    return not isinstance(operand, _WITHOUT_LETTERS)


def without_order_of_strings(condition: Document, collation: Document) -> Document:
    """Return a filter that matches every record that this one matches under the collation, and others. O(size of the filter)."""
    kept: list[Document] = []
    for name, operand in condition.items():
        if name == "$and":
            kept += [without_order_of_strings(part, collation) for part in operand]
        elif name == "$or":
            kept.append({"$or": [without_order_of_strings(part, collation) for part in operand]})
        elif not compares_strings(operand):
            kept.append({name: operand})
        elif not name.startswith("$"):
            kept += _field(name, operand, collation)
    some = [part for part in kept if part and not any(not branch for branch in part.get("$or", ()))]
    return {"$and": some} if len(some) > 1 else some[0] if some else {}


def _field(path: str, operand: Any, collation: Document) -> list[Document]:
    if isinstance(operand, str):
        return _equal_to_one_of(path, [operand], collation)
    if not isinstance(operand, Mapping) or not next(iter(operand), "").startswith("$"):
        return []
    conditions: list[Document] = []
    bytewise = {name: value for name, value in operand.items() if name in _BYTEWISE}
    if bytewise:
        conditions.append({path: bytewise})
    for name, value in operand.items():
        if name in _BYTEWISE:
            continue
        if not compares_strings(value):
            conditions.append({path: {name: value}})
        elif name == "$eq" and isinstance(value, str):
            conditions += _equal_to_one_of(path, [value], collation)
        elif name == "$in" and is_list(value):
            conditions += _equal_to_one_of(path, value, collation)
        elif name in _RANGES and isinstance(value, str):
            conditions.append({path: {"$type": "string"}})
    return conditions


def _equal_to_one_of(path: str, values: Sequence[Any], collation: Document) -> list[Document]:
    """Return conditions for equality with one of the values; empty if nothing is known of it."""
    if not _tells_ascii_apart(collation):
        return []
    strings = [value for value in values if isinstance(value, str)]
    others = [value for value in values if not isinstance(value, str)]
    if any(compares_strings(value) for value in others) or not all(map(_PRINTABLE.fullmatch, strings)):
        return []
    equal: list[Document] = [{path: {"$in": others}}] if others else []
    if collation.get("strength", _TERTIARY) >= _TERTIARY:
        equal.append({path: {"$in": strings}})
    else:
        choice = "|".join(map(re.escape, strings))
        equal.append({path: {"$regex": f"^(?:{choice})$", "$options": "i"}})
    return [{"$or": [*equal, {path: _OTHER_CHARACTERS}]}]


def _tells_ascii_apart(collation: Document) -> bool:
    return (
        collation.get("locale") in _PLAIN_LOCALES
        and collation.get("alternate", "non-ignorable") == "non-ignorable"
        and not collation.get("numericOrdering", False)
    )


__all__ = ["compares_strings", "without_order_of_strings"]
