"""Rows of the settings' tables: type, unit, default, bounds and sentence of each setting, and the check against them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from quaestor.errors import ConfigurationError

_ROW = "row"
_LONGEST_SHOWN = 100
_TABLES: dict[type[Any], dict[str, Row]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a text.

    description: the end of the sentence "it must be ...".
    fits: whether a text has the form.
    """

    description: str
    fits: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting, as its table describes it.

    name: of the argument that sets it.
    kind: int, float, bool, str or tuple.
    unit: of a number; empty for a count without a unit.
    lowest, highest: bounds of a number, inclusive.
    excluded: bounds that are exclusive.
    choices: all values of a text that has but a few.
    form: form of a text, or of each text of a tuple.
    optional: whether None is a value.
    sentence: description for users.
    """

    name: str = ""
    kind: type = str
    unit: str = ""
    default: Any = None
    lowest: float | None = None
    highest: float | None = None
    excluded: tuple[float, ...] = ()
    choices: tuple[str, ...] = ()
    form: Form | None = None
    optional: bool = False
    sentence: str

    @property
    def values(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return _or(repr(choice) for choice in self.choices)
        if self.kind is bool:
            return "True or False"
        if self.lowest is None or self.highest is None:
            if self.kind is tuple:
                return "a tuple of texts" + (f", each {self.form.description}" if self.form else "")
            return (self.form.description if self.form else "a text") + (" or None" if self.optional else "")
        number = "a whole number" if self.kind is int else "a number"
        unit = f" of {self.unit}" if self.unit else ""
        bounds = [f"above {self.lowest:g}" if self.lowest in self.excluded else f"from {_digits(self.lowest)}"]
        bounds.append(f"below {self.highest:g}" if self.highest in self.excluded else f"to {_digits(self.highest)}")
        joint = " and " if self.excluded else " "
        return f"{number}{unit} {joint.join(bounds)}"


def whole(default: int, unit: str, lowest: int, highest: int, sentence: str) -> int:
    """Declare a setting that is a whole number, with its bounds."""
    row = Row(kind=int, unit=unit, default=default, lowest=lowest, highest=highest, sentence=sentence)
    return field(default=default, metadata={_ROW: row})


def number(
    default: float, lowest: float, highest: float, sentence: str, *, unit: str = "", excluded: tuple[float, ...] = ()
) -> float:
    """Declare a setting that is a number, with its bounds; those in `excluded` are exclusive."""
    row = Row(
        kind=float, unit=unit, default=default, lowest=lowest, highest=highest, excluded=excluded, sentence=sentence
    )
    return field(default=default, metadata={_ROW: row})


def switch(default: bool, sentence: str, *, name: str = "") -> bool:
    """Declare a setting that is on or off. name: of the argument that sets it, where the attribute has another name."""
    return field(default=default, metadata={_ROW: Row(kind=bool, name=name, default=default, sentence=sentence)})


def choice(default: str, choices: tuple[str, ...], sentence: str) -> str:
    """Declare a setting that has a few values."""
    return field(default=default, metadata={_ROW: Row(default=default, choices=choices, sentence=sentence)})


def text(default: str, sentence: str, form: Form | None = None) -> str:
    """Declare a setting that is a text."""
    return field(default=default, metadata={_ROW: Row(default=default, form=form, sentence=sentence)})


def optional_text(sentence: str) -> str | None:
    """Declare a setting that is a text or None; None is the default."""
    return field(default=None, metadata={_ROW: Row(optional=True, sentence=sentence)})


def texts(sentence: str, form: Form | None = None) -> tuple[str, ...]:
    """Declare a setting that is a tuple of texts; the default is empty."""
    return field(default=(), metadata={_ROW: Row(kind=tuple, default=(), form=form, sentence=sentence)})


def rows(settings: type[Any]) -> Mapping[str, Row]:
    """The table of a class of settings: each row by the attribute that holds its value."""
    if settings in _TABLES:
        return _TABLES[settings]
    table = _TABLES[settings] = {}
    for attribute in fields(settings):
        row = attribute.metadata.get(_ROW)
        if isinstance(row, Row):
            table[attribute.name] = _named(row, attribute.name)
    return table


def check(settings: Any) -> None:
    """Check each value against its row. Raises ConfigurationError with the value, the bound and the remedy."""
    for attribute, row in rows(type(settings)).items():
        value = getattr(settings, attribute)
        if row.kind is tuple and isinstance(value, list):
            value = tuple(value)
            object.__setattr__(settings, attribute, value)
        if value is None and row.optional:
            continue
        if fault := _fault(row, value):
            shown = repr(value)
            shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
            default = "" if row.default in (None, "", ()) else f" (default {row.default!r})"
            raise ConfigurationError(f"{row.name}={shown} {fault}: it must be {row.values}{default}")


def _fault(row: Row, value: object) -> str:
    """Return the end of the sentence about a value that its row forbids; empty if the row allows it."""
    if row.kind is tuple:
        if not isinstance(value, tuple) or not all(isinstance(part, str) for part in value):
            return f"is of type {type(value).__name__}, not a tuple of texts"
        wrong = [part for part in value if row.form is not None and not row.form.fits(part)]
        return f"contains {wrong[0][:_LONGEST_SHOWN]!r}" if wrong else ""
    if row.kind in (int, float):
        return _number_fault(row, value)
    if not isinstance(value, row.kind):
        return f"is of type {type(value).__name__}"
    if row.choices and value not in row.choices:
        return "is none of its values"
    return "has the wrong form" if row.form is not None and not row.form.fits(str(value)) else ""


def _number_fault(row: Row, value: object) -> str:
    allowed = (int,) if row.kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        return f"is of type {type(value).__name__}"
    if math.isnan(value):
        return "is not a number"
    if row.lowest is not None and (value < row.lowest or value == row.lowest in row.excluded):
        return f"is below the lowest value {_digits(row.lowest)}"
    if row.highest is not None and (value > row.highest or value == row.highest in row.excluded):
        return f"is above the highest value {_digits(row.highest)}"
    return ""


def _named(row: Row, attribute: str) -> Row:
    if row.name:
        return row
    values = {column.name: getattr(row, column.name) for column in fields(Row)}
    return Row(**(values | {"name": attribute}))


def _digits(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _or(words: Any) -> str:
    *some, last = words
    return f"{', '.join(some)} or {last}" if some else str(last)
