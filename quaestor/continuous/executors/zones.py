"""Timestamps with and without a zone: all are UTC."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def without_zones(table: pa.Table) -> pa.Table:
    """Return a table whose timestamps have no zone; all are UTC, so no value changes."""
    return _cast_timestamps(table, None)


def with_zones(table: pa.Table) -> pa.Table:
    """Return a table whose timestamps are in UTC."""
    return _cast_timestamps(table, "UTC")


def _cast_timestamps(table: pa.Table, zone: str | None) -> pa.Table:
    wanted: Any = pa.schema(
        [
            pa.field(field.name, pa.timestamp("us", tz=zone)) if pa.types.is_timestamp(field.type) else field
            for field in table.schema
        ]
    )
    return table.cast(wanted)
