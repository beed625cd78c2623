"""Necessary conditions in words: properties that a written record must or must not have for the index to propose a filter.

For people who ask why a filter without a value to look for is found all the same (`quaestor explain`). The text contains the
query's own values, so only the query's author may see it; `Access.describe` names structures and paths alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from quaestor.planning.access_entries import (
    Absent,
    Access,
    AnyOf,
    Entry,
    Equality,
    Exists,
    GeoSquares,
    Literals,
    Outside,
    Prefix,
    Range,
    Tokens,
    Traits,
    Unequal,
    eligible,
)
from quaestor.query.bson_order import NUMBER, STRING
from quaestor.query.bson_types import BSON_TYPES

_MOST: Final = 4
"""Alternatives that are named, at most."""
_TYPE_NAMES: Final = {number: name for name, number in BSON_TYPES.items()}


def required_condition(alternatives: Sequence[Access]) -> str | None:
    """Return the condition of a filter's likeliest access path; None: it has none, so every write tries it."""
    return _condition(eligible(alternatives)[0]) if alternatives else None


def _condition(access: Access) -> str:
    if isinstance(access, AnyOf):
        return _any(list(dict.fromkeys(map(_entry, access.members)))) or "no record satisfies it"
    return _entry(access)


def _entry(entry: Entry) -> str:
    match entry:
        case Equality():
            return f"{entry.path} is {_values(entry.keys)}"
        case Range():
            return f"{entry.path} is {_ends(entry)}"
        case Prefix():
            return f"{entry.path} begins with {entry.prefix!r}"
        case Literals():
            texts = [f"{text.text!r}{' in any case' if text.caseless else ''}" for text in entry.texts]
            return f"{entry.path} holds {_any(texts)}"
        case Tokens():
            return f"the indexed texts hold {_any([repr(word) for word in entry.words])}"
        case GeoSquares():
            return f"{entry.path} touches {_any([f'the rectangle {box}' for box in entry.boxes])}"
        case Traits():
            return f"{entry.path} is {_any([_trait(key) for key in entry.keys])}"
        case Outside():
            return f"{entry.path} has no value {_beyond(entry)}"
        case Unequal():
            return f"{entry.path} is not {_values(entry.keys)}"
        case Exists():
            return f"{entry.path} is there"
        case Absent():
            return f"{entry.path} is not there"


def _any(named: Sequence[str]) -> str:
    shown = " or ".join(named[:_MOST])
    return f"{shown} or one of {len(named) - _MOST:,} more" if len(named) > _MOST else shown


def _values(keys: Sequence[Hashable]) -> str:
    """Return the values in words. Numbers, strings and null are their own keys; the keys of other values are not readable."""
    plain = [repr(key) for key in keys if isinstance(key, str | int | float)] + ["null"] * (None in keys)
    if len(plain) < len(keys):
        return "the value" if len(keys) == 1 else f"one of {len(keys):,} values"
    return _any(plain)


def _trait(key: Any) -> str:
    what, operand = key
    if what == "type":
        return f"of type {_TYPE_NAMES.get(operand, operand)}"
    return f"an array of {operand}" if what == "size" else f"{operand} modulo {what}"


def _ends(entry: Range) -> str:
    low, high = _end(entry.bracket, entry.low), _end(entry.bracket, entry.high)
    if entry.low is None:
        return f"at most {high}"
    return f"at least {low}" if entry.high is None else f"at least {low} and at most {high}"


def _beyond(entry: Outside) -> str:
    return (
        f"above {_end(entry.bracket, entry.high)}" if entry.low is None else f"below {_end(entry.bracket, entry.low)}"
    )


def _end(bracket: int, value: Any) -> str:
    return repr(value) if bracket in (NUMBER, STRING) else "the end"
