"""Encoding of values as BSON bytes for comparison: the same bytes in every process that decoded the value."""

from __future__ import annotations

from typing import Any, Final

from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS, RawBSONDocument

OPTIONS: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    uuid_representation=UuidRepresentation.STANDARD, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
"""Encoding of native values that bson leaves open, wherever records are compared as bytes."""
RAW: Final[CodecOptions[RawBSONDocument]] = DEFAULT_RAW_BSON_OPTIONS.with_options(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
"""Decoding of raw records: also dates before the year 1 and after 9999, which Python's own type does not hold."""
