"""Encoding of values as BSON bytes that are compared: the same bytes in every process that decoded the value."""

from __future__ import annotations

from typing import Any, Final

from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS, RawBSONDocument

OPTIONS: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    uuid_representation=UuidRepresentation.STANDARD, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
"""How native values that bson leaves open are encoded, wherever records are compared as bytes."""
RAW: Final[CodecOptions[RawBSONDocument]] = DEFAULT_RAW_BSON_OPTIONS.with_options(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
"""How raw records are read: dates before the year 1 and after 9999 too, which Python's own type does not know."""
