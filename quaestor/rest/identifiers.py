"""Identifiers of records in URL paths: one spelling for every BSON value that may be an `_id`, and one id for every spelling.

After percent-decoding, in this order:

1. 24 lower-case hex digits: an ObjectId.
2. An integer as JSON writes it (`0`, `-7`, no leading zeros), within 64 bits: that integer.
3. `~` and Extended JSON: that value. `~"42"` is the string 42, `~{"$uuid":"..."}` a UUID, `~1.5` a double.
4. Everything else: that string, slashes included.

Strings that look like one of the first three are written in the third form. The same holds for the empty string, and for `.` and
`..`, which clients take for directories.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from bson import ObjectId
from bson.regex import Regex

from quaestor.rest import strict_json

MAX_CHARACTERS: Final = 2_048
_DEPTH: Final = 8
_OBJECT_ID: Final = re.compile(r"[0-9a-f]{24}")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LARGEST: Final = 2**63


class BadIdError(ValueError):
    """An id that no record can have; the message gives the reason."""


def parse_id(text: str) -> Any:
    """Return the `_id` in the (percent-decoded) rest of a path. Raises BadIdError."""
    if not text or len(text) > MAX_CHARACTERS:
        raise BadIdError(f"an id has 1 to {MAX_CHARACTERS} characters")
    if _OBJECT_ID.fullmatch(text):
        return ObjectId(text)
    if _INTEGER.fullmatch(text) and -_LARGEST <= (number := int(text)) < _LARGEST:
        return number
    if not text.startswith("~"):
        return text
    try:
        value = strict_json.parse(text[1:], depth=_DEPTH)
    except strict_json.JsonError as error:
        raise BadIdError(f"after ~ comes Extended JSON: {error}") from error
    require_id(value)
    return value


def format_id(value: Any) -> str:
    """Return the id as the last part of a path, percent-encoded. parse_id() returns the same `_id` from the decoded path."""
    return quote(_text(value), safe="")


def require_id(value: Any) -> None:
    """Raise BadIdError for values that MongoDB refuses as `_id`, or would read as operators."""
    if isinstance(value, list | Regex | re.Pattern):
        raise BadIdError("arrays and regular expressions cannot be ids")
    if isinstance(value, Mapping):
        strict_json.walk(value, _refuse_operators)


def equals(value: Any) -> Any:
    """Return the condition that a record's `_id` equals this value."""
    return {"$eq": value} if isinstance(value, Mapping) else value


def _text(value: Any) -> str:
    if isinstance(value, str):
        plain = value and value not in (".", "..") and not value.startswith("~")
        if plain and not _OBJECT_ID.fullmatch(value) and not _INTEGER.fullmatch(value):
            return value
    elif isinstance(value, ObjectId):
        return str(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    return "~" + strict_json.dumps(value).decode()


def _refuse_operators(value: Any, pointer: tuple[str | int, ...]) -> None:
    if isinstance(value, Mapping) and any(name.startswith("$") for name in value):
        raise BadIdError("names inside an id cannot begin with $")
