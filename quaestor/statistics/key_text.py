"""Text of a record's `_id`, for people and for counting: extended JSON, bounded."""

from __future__ import annotations

from typing import Any, Final

from bson import json_util
from xxhash import xxh3_64_hexdigest

MOST_CHARACTERS: Final = 120
_OPTIONS: Final = json_util.RELAXED_JSON_OPTIONS


def full(key: Any) -> str:
    """Return the text of an `_id` in Extended JSON (relaxed). A value without one is shown by its type."""
    try:
        return json_util.dumps(key, json_options=_OPTIONS)
    except (TypeError, ValueError, OverflowError):
        return f"<{type(key).__name__}>"


def bounded(key: Any) -> str:
    """Return the same text, cut after MOST_CHARACTERS, with a hash behind the cut."""
    text = full(key)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}~{xxh3_64_hexdigest(text.encode())}"
