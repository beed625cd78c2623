"""Operators that a stranger may use, by name: what is not listed is refused.

Left out of filters: what runs code (`$where`, `$function`), what computes (`$expr`, `$jsonSchema`: their cost is not seen from
their size), what needs the collection's text index (`$text`) and what is random. An application may allow more in `Limits`.
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
"""Arbitrary code: refused whatever an application allows."""

UPDATE_OPERATORS: Final = frozenset(
    {
        "$addToSet", "$bit", "$currentDate", "$inc", "$max", "$min", "$mul", "$pop", "$pull", "$pullAll", "$push", "$rename",
        "$set", "$unset",
    }
)  # fmt: skip
"""https://www.mongodb.com/docs/manual/reference/operator/update/"""

COMPUTING_OPERATORS: Final = frozenset({"$bit", "$inc", "$max", "$min", "$mul", "$rename"})
"""Those that make a value of the one that is stored: whether they fail (overflow, unique index) tells that one, step by step."""

UPDATE_MODIFIERS: Final = frozenset({"$each", "$position", "$slice", "$sort"})
"""Below `$push` and `$addToSet`."""
