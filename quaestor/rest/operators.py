"""Operators that a stranger may use, by name: all others are refused.

Left out of filters are operators that run code (`$where`, `$function`), and random ones. Operators that compute (`$expr`,
`$jsonSchema`) are left out because their size does not bound their cost, and `$text` because it needs the collection's text
index. An application may allow more in `Limits`.
"""

from __future__ import annotations

from typing import Final

FILTER_OPERATORS: Final = frozenset(
    {
        "$all", "$and", "$bitsAllClear", "$bitsAllSet", "$bitsAnyClear", "$bitsAnySet", "$comment", "$elemMatch", "$eq",
        "$exists", "$gt", "$gte", "$in", "$lt", "$lte", "$mod", "$ne", "$nin", "$nor", "$not", "$options", "$or", "$regex",
        "$size", "$type",
        "$geoIntersects", "$geoWithin", "$near", "$nearSphere", "$geometry", "$maxDistance", "$minDistance", "$box", "$center",
        "$centerSphere", "$polygon",
    }
)  # fmt: skip
"""https://www.mongodb.com/docs/manual/reference/operator/query/"""

NEVER: Final = frozenset({"$where", "$function", "$accumulator"})
"""Operators that run arbitrary code: always refused, even if an application allows them."""

UPDATE_OPERATORS: Final = frozenset(
    {
        "$addToSet", "$bit", "$currentDate", "$inc", "$max", "$min", "$mul", "$pop", "$pull", "$pullAll", "$push", "$rename",
        "$set", "$unset",
    }
)  # fmt: skip
"""https://www.mongodb.com/docs/manual/reference/operator/update/"""

COMPUTING_OPERATORS: Final = frozenset({"$bit", "$inc", "$max", "$min", "$mul", "$rename"})
"""Operators that compute from the stored value: whether they fail (overflow, unique index) reveals that value, step by step."""

UPDATE_MODIFIERS: Final = frozenset({"$each", "$position", "$slice", "$sort"})
"""Modifiers below `$push` and `$addToSet`."""
