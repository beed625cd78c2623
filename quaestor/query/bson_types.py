"""The names that `$type`, `bsonType` and `$convert` give to BSON's types, and their numbers.

https://www.mongodb.com/docs/manual/reference/bson-types/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BSON_TYPES: Final[Mapping[str, int]] = {
    "double": 1,
    "string": 2,
    "object": 3,
    "array": 4,
    "binData": 5,
    "undefined": 6,
    "objectId": 7,
    "bool": 8,
    "date": 9,
    "null": 10,
    "regex": 11,
    "dbPointer": 12,
    "javascript": 13,
    "symbol": 14,
    "javascriptWithScope": 15,
    "int": 16,
    "timestamp": 17,
    "long": 18,
    "decimal": 19,
    "minKey": -1,
    "maxKey": 127,
}
