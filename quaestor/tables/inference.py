"""Columns of a table that is filled from documents: declared, or inferred from the documents as they come.

A new field becomes a column of its first value's type. A wider number widens its column. A value of any other type is refused:
its column is NULL in that row, and the refusal is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from quaestor.tables.schema import RESERVED, WIDER, Column, Schema, Type
from quaestor.tables.values import fitted, type_of

ID: Final = "_id"
DELETED: Final = "_deleted"
MOST_COLUMNS: Final = 1_000
_OWN: Final = RESERVED | {DELETED, "valid_from", "valid_to"}


class Refused(NamedTuple):
    """Value that has no place in its column."""

    field: str
    reason: str


class Inference:
    """Columns as they grow with documents. `_id` and `_deleted` are always among them.

    declared: whether only the fields of the schema are kept.
    """

    def __init__(self, schema: Schema, *, declared: bool) -> None:
        self._types = {column.name: column.type for column in schema.columns}
        self._names = {name.lower() for name in self._types}
        self._declared = declared

    @property
    def schema(self) -> Schema:
        """The columns so far."""
        return Schema(tuple(Column(name, kind) for name, kind in self._types.items()), (ID,))

    def row(self, document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Refused]]:
        """Return the row of a document, and the refused values. Raises ValueError if the `_id` has another type."""
        row: dict[str, Any] = {DELETED: False}
        refused: list[Refused] = []
        for field, value in document.items():
            if self._declared and field not in self._types:
                continue
            reason = self._refusal(field, value)
            if reason is None:
                row[field] = value
            elif field == ID:
                raise ValueError(f"_id {reason}")
            else:
                refused.append(Refused(field, reason))
        return {name: value for name, value in row.items() if name in self._types}, refused

    def _refusal(self, field: str, value: Any) -> str | None:
        """Return why a value has no place; None: it has one, perhaps in a new or wider column."""
        kind, needed = self._types.get(field), type_of(value)
        if field.lower() in _OWN:
            return "has a name that the table uses itself"
        if kind is None:
            if needed is None:
                return None
            if not field or field.lower() in self._names:
                return "has a name that SQL cannot tell from another one"
            if len(self._types) >= MOST_COLUMNS:
                return f"would be column {MOST_COLUMNS + 1}"
            reason = _unfit(value, needed)
            if reason is None:
                self._types[field] = needed
                self._names.add(field.lower())
            return reason
        if needed is not None and not self._declared and (kind, needed) in WIDER and field != ID:
            self._types[field] = kind = needed
        return _unfit(value, kind)


def _unfit(value: Any, kind: Type) -> str | None:
    """Return why a value has no place in a column; None: it has one."""
    try:
        fitted(value, kind)
    except ValueError as error:
        return str(error)
    return None


def schema_of_key(kind: Type) -> Schema:
    """Return the columns that every collection has, for `_id`s of a type."""
    return Schema((Column(ID, kind), Column(DELETED, Type.BOOL)), (ID,))
