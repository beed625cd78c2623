"""Schemas and values: columns are added and widened, never dropped or retyped; a value keeps its meaning or is refused."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId

from quaestor.tables.inference import Inference
from quaestor.tables.schema import Column, Schema, SchemaError, Type, decode
from quaestor.tables.values import fitted, type_of

KEY = ObjectId("65a1b2c3d4e5f60718293a4b")
DAY = datetime(2027, 1, 15, 12, 30, 0, 123_000, UTC)


def schema(*columns: tuple[str, str], key: tuple[str, ...] = ()) -> Schema:
    return Schema(tuple(Column(name, Type(kind)) for name, kind in columns), key)


BASE = schema(("a", "bigint"), ("b", "text"))


@pytest.mark.parametrize(
    ("newer", "whole", "result"),
    [
        (BASE, True, BASE),
        (schema(("b", "text"), ("a", "bigint"), ("c", "json")), True, schema(("a", "bigint"), ("b", "text"), ("c", "json"))),
        (schema(("a", "double"), ("b", "text")), True, schema(("a", "double"), ("b", "text"))),
        (schema(("a", "decimal"), ("b", "text")), True, schema(("a", "decimal"), ("b", "text"))),
        (schema(("c", "bool")), False, schema(("a", "bigint"), ("b", "text"), ("c", "bool"))),
    ],
)  # fmt: skip
def test_columns_are_added_and_widened(newer: Schema, whole: bool, result: Schema) -> None:
    evolved = BASE.evolved(newer, whole=whole)
    assert evolved == result == decode(evolved.encode())
    assert evolved.evolved(BASE, whole=False) == evolved, "a process with the older schema changes nothing"


@pytest.mark.parametrize(
    ("newer", "column", "message"),
    [
        (schema(("a", "bigint")), "b", "dropped: declare it again"),
        (schema(("a", "text"), ("b", "text")), "a", "was bigint, and would be text: give the new column another name"),
        (schema(("a", "bigint"), ("b", "text"), key=("a",)), "a", "make a new table"),
    ],
)
def test_a_dropped_or_retyped_column_is_an_error_with_its_name_and_remedy(
    newer: Schema, column: str, message: str
) -> None:
    with pytest.raises(SchemaError, match=message) as refused:
        BASE.evolved(newer, whole=True)
    assert refused.value.column == column


@pytest.mark.parametrize("columns", [["ts"], ["TS"], ["_step"], [""], ["a", "A"]])
def test_names_that_sql_cannot_tell_apart_are_refused(columns: list[str]) -> None:
    with pytest.raises(SchemaError, match="rename"):
        schema(*((name, "text") for name in columns))


def test_a_key_consists_of_columns() -> None:
    with pytest.raises(SchemaError, match="no column"):
        schema(("a", "bigint"), key=("b",))


@pytest.mark.parametrize(
    ("value", "kind", "kept"),
    [
        (True, Type.BOOL, True),
        (7, Type.BIGINT, 7),
        (Int64(-(1 << 63)), Type.BIGINT, -(1 << 63)),
        (7, Type.DOUBLE, 7.0),
        (7, Type.DECIMAL, Decimal(7)),
        (1.5, Type.DOUBLE, 1.5),
        (Decimal128("1.10"), Type.DECIMAL, Decimal("1.10")),
        ("x", Type.TEXT, "x"),
        (KEY, Type.TEXT, "65a1b2c3d4e5f60718293a4b"),
        (uuid.UUID(int=7), Type.TEXT, "00000000-0000-0000-0000-000000000007"),
        (DAY, Type.TIMESTAMP, 1_800_016_200_123_000),
        (DAY.replace(tzinfo=None), Type.TIMESTAMP, 1_800_016_200_123_000),
        (DatetimeMS(-1), Type.TIMESTAMP, -1_000),
        (DatetimeMS(253_402_300_799_999), Type.TIMESTAMP, 253_402_300_799_999_000),
        (DatetimeMS(-62_135_596_800_000), Type.TIMESTAMP, -62_135_596_800_000_000),
        (b"\x00", Type.BYTES, b"\x00"),
        ({"a": [KEY]}, Type.JSON, '{"a": [{"$oid": "65a1b2c3d4e5f60718293a4b"}]}'),
        (1 << 70, Type.JSON, str(1 << 70)),
        (None, Type.BIGINT, None),
    ],
)
def test_a_value_that_fits_is_kept(value: Any, kind: Type, kept: Any) -> None:
    result = fitted(value, kind)
    assert result == kept
    assert type(result) is type(kept)
    if value is not None and not (type(value) is int and kind in (Type.DOUBLE, Type.DECIMAL)):
        assert type_of(value) is kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, Type.BIGINT), (1, Type.BOOL), (1 << 63, Type.BIGINT), (1.0, Type.BIGINT), (1.0, Type.DECIMAL), ("1", Type.BIGINT),
        (1, Type.TEXT), (Decimal128("1E-13"), Type.DECIMAL), (Decimal128("NaN"), Type.DECIMAL), (Decimal("1e27"), Type.DECIMAL),
        ("2027", Type.TIMESTAMP), (DatetimeMS((1 << 63) - 1), Type.TIMESTAMP), (DatetimeMS(253_402_300_800_000), Type.TIMESTAMP),
        (DatetimeMS(-62_135_596_800_001), Type.TIMESTAMP), (Binary(b"x", 5), Type.BYTES), ([1], Type.BIGINT),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(value: Any, kind: Type) -> None:
    """No value is rounded, cut or turned into text without a request."""
    with pytest.raises(ValueError, match=r"is not|no room"):
        fitted(value, kind)


@pytest.mark.parametrize("value", [[1, 2.5], {"x": 1.0, "y": 2.5}, {"type": "Point", "coordinates": [1, 2.5]}])
def test_three_spellings_of_a_point_are_equal(value: Any) -> None:
    assert fitted(value, Type.POINT) == {"x": 1.0, "y": 2.5}


@pytest.mark.parametrize("value", [[1], [1, "2"], [1, True], [1, math.inf], {"x": 1}, "1 2", 3, [1, 2, 3]])
def test_other_values_are_no_points(value: Any) -> None:
    with pytest.raises(ValueError, match="is not point"):
        fitted(value, Type.POINT)


def test_not_a_number_is_a_double() -> None:
    assert math.isnan(fitted(math.nan, Type.DOUBLE))


@pytest.mark.parametrize("declared", [True, False])
def test_a_date_outside_the_calendar_is_refused_and_ends_no_filling(declared: bool) -> None:
    """The value has no place, whether it is the first of its column or a later one, and the row can be appended."""
    known = [Column("_id", Type.BIGINT), *([Column("at", Type.TIMESTAMP)] if declared else [])]
    inference = Inference(Schema((*known, Column("_deleted", Type.BOOL)), ("_id",)), declared=False)
    row, refused = inference.row({"_id": 1, "at": DatetimeMS((1 << 63) - 1)})
    assert [(entry.field, "outside the years 1 to 9999" in entry.reason) for entry in refused] == [("at", True)]
    assert "at" not in row
    assert inference.row({"_id": 2, "at": DAY}) == ({"_deleted": False, "_id": 2, "at": DAY}, [])
