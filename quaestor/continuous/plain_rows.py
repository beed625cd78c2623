"""Rows of an Arrow table as plain Python values, also with times that no datetime can hold."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from quaestor.tables.instants import datetime_of

_DAY: Final = 86_400 * 1_000_000
_CYCLE: Final = 146_097 * _DAY
"""Microseconds of 400 years: the calendar repeats after them."""
_CYCLE_YEARS: Final = 400


def plain_rows(table: Any) -> list[dict[str, Any]]:
    """Return the rows of an Arrow table. A time outside the years 1 to 9999 is a text: `+12026-01-01T00:00:00.000000Z`."""
    try:
        return list(table.to_pylist())
    except (OverflowError, ValueError):  # Python has no such datetime
        columns = [_values(column) for column in table.columns]
        return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_plain(value) for value in column]


def _plain(value: Any) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_date(value.type):
            return _far(value.value * _DAY).partition("T")[0]
        return _far(value.value) + ("Z" if value.type.tz else "")


def _far(instant: int) -> str:
    """Return an instant in the expanded form of ISO 8601: a sign before the year, without a zone."""
    cycles, within = divmod(instant, _CYCLE)
    when = datetime_of(within)
    return f"{when.year + cycles * _CYCLE_YEARS:+05d}-{when:%m-%dT%H:%M:%S.%f}"
