"""The kind of a filter's value: a plain value, or a document of operators.

mongod decides by the first key: `{a: {$gt: 1}}` holds operators, `{a: {b: 1, $gt: 1}}` is an embedded document to
compare with. A document with `$ref` and `$id` is a DBRef and therefore a value, wherever its keys stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson import DBRef


def as_filter(value: Any) -> Mapping[str, Any] | None:
    """Return the value as a document that can be read as a filter; None if it is not a document. DBRefs are documents."""
    if isinstance(value, DBRef):
        return value.as_doc()
    return value if isinstance(value, Mapping) else None


def is_expression(value: Any, *, incomplete_dbref: bool = False) -> bool:
    """Whether `value` is a document of operators.

    incomplete_dbref: a document with any of `$ref`, `$id`, `$db` counts as a DBRef (inside `$elemMatch`).
    """
    if not isinstance(value, Mapping) or not value:
        return False
    if not str(next(iter(value))).startswith("$"):
        return False
    if incomplete_dbref:
        return not ("$ref" in value or "$id" in value or "$db" in value)
    return not ("$ref" in value and "$id" in value)
