"""Reads the case files: canonical Extended JSON, one case a line.

bson.json_util alone would not do: it takes the query operator {"$regex": ...} for the legacy form of a regex value.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.json_util import JSONMode, JSONOptions

FOLDER = Path(__file__).parent
_OPTIONS = JSONOptions(
    json_mode=JSONMode.CANONICAL,
    tz_aware=False,
    uuid_representation=0,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
_TYPES = frozenset(
    [
        "$oid",
        "$date",
        "$numberInt",
        "$numberLong",
        "$numberDouble",
        "$numberDecimal",
        "$binary",
        "$uuid",
        "$regularExpression",
        "$timestamp",
        "$minKey",
        "$maxKey",
        "$code",
    ]
)


def cases(name: str) -> Iterator[dict[str, Any]]:
    """Every case of a file."""
    with gzip.open(FOLDER / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line, object_pairs_hook=_value)


def _value(pairs: list[tuple[str, Any]]) -> Any:
    document = dict(pairs)
    keys = document.keys()
    if "$regex" in keys or "$ref" in keys:
        return document
    if (len(document) == 1 and keys <= _TYPES) or keys == {"$code", "$scope"}:
        return json_util.object_hook(document, _OPTIONS)
    return document
