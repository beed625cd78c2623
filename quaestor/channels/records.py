"""Records of datasets: their values in the form of columns, and the reasons why a record is rejected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from quaestor.tables.inference import DELETED
from quaestor.tables.instants import instant_of
from quaestor.tables.schema import RESERVED, Column, Schema, Type
from quaestor.tables.values import fitted, type_of

RESERVED_NAMES: Final = RESERVED | {DELETED, "deleted", "_previous", "_current", "_until", "_instant"}
"""Names that no column of a dataset has. In small letters."""
MOST_COLUMNS: Final = 1_000


class Row(NamedTuple):
    """Record in the form of columns.

    number: of the record in its batch, from 0.
    """

    number: int
    values: dict[str, Any]


class Rejected(NamedTuple):
    """Record that was not written.

    number: in its batch, from 0.
    """

    number: int
    reason: str


class Accepted(NamedTuple):
    """Records of a batch that fit, and the columns that they need."""

    rows: list[Row]
    rejected: list[Rejected]
    schema: Schema


def accepted_rows(records: Iterable[Mapping[str, Any]], schema: Schema, *, extensible: bool) -> Accepted:
    """Return the rows of records. extensible: an unknown field becomes a column of its first value's type."""
    types = {column.name: column.type for column in schema.columns}
    lower = {name.lower() for name in types}
    rows: list[Row] = []
    rejected: list[Rejected] = []
    for index, record in enumerate(records):
        try:
            new = _new_columns(record, types, lower, extensible=extensible)
            values = {
                name: _value(name, value, {**types, **new})
                for name, value in record.items()
                if name in types or name in new
            }
            missing = [name for name in schema.key if values.get(name) is None]
            if missing:
                raise ValueError(f"the key {missing[0]!r} has no value")
        except ValueError as error:
            rejected.append(Rejected(index, str(error)))
            continue
        types |= new
        lower |= {name.lower() for name in new}
        rows.append(Row(index, values))
    return Accepted(rows, rejected, Schema(tuple(Column(name, kind) for name, kind in types.items()), schema.key))


def value_of(record: Mapping[str, Any], name: str, kind: Type | None) -> Any:
    """Return a field in the form of a column; None: the record lacks it. Raises ValueError for a value that does not fit."""
    return _value(name, record.get(name), {name: kind or Type.TEXT})


def stored_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of an Arrow table in the form of columns."""
    return {name: instant_of(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _new_columns(
    record: Mapping[str, Any], types: Mapping[str, Type], lower: set[str], *, extensible: bool
) -> dict[str, Type]:
    new: dict[str, Type] = {}
    for name, value in record.items():
        if name in types:
            continue
        if not isinstance(name, str) or not name or name.lower() in RESERVED_NAMES:
            raise ValueError(f"a field must not be named {name!r}")
        if name.lower() in lower or name.lower() in {other.lower() for other in new}:
            raise ValueError(f"the field {name!r} has a name that SQL cannot tell from another one")
        if not extensible:
            raise ValueError(f"there is no field {name!r}: the dataset has {', '.join(types)}")
        kind = type_of(value)
        if kind is None:
            continue
        if len(types) + len(new) >= MOST_COLUMNS:
            raise ValueError(f"the field {name!r} would be column {MOST_COLUMNS + 1}")
        new[name] = kind
    return new


def _value(name: str, value: Any, types: Mapping[str, Type]) -> Any:
    kind = types[name]
    try:
        if isinstance(value, str) and kind is Type.TIMESTAMP:
            value = datetime.fromisoformat(value)
        elif isinstance(value, str) and kind is Type.DECIMAL:
            value = Decimal(value)
        return fitted(value, kind)
    except (ValueError, InvalidOperation) as error:
        raise ValueError(f"field {name!r}: {error}") from error
