"""Encoding of values as BSON bytes that are compared: the same bytes in every process that decoded the value."""

from __future__ import annotations

from typing import Any, Final

from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions

OPTIONS: Final[CodecOptions[dict[str, Any]]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
"""How native values that bson leaves open are encoded, wherever records are compared as bytes."""
