"""Query classes: what is read of a collection, which decides how its results change. Pure.

A look-up by id changes only with the writes to its record. The result of a filter also changes when records enter. Lifetimes are
therefore learned, and may be tuned, for each class of a collection by itself. Parameters of a collection apply to all of its
classes without parameters of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from quaestor.model import Operation, Query

RECORD: Final = "record"
CLASSES: Final = (RECORD, *(operation.value for operation in Operation))
_CLASSES = re.compile(rf":(?:{'|'.join(CLASSES)})(?: |$)")


def query_class(query: Query) -> str:
    """Class of a query: "record" if it names the `_id` of one, else its operation. A hint: nothing stale comes of a wrong one."""
    if query.operation is Operation.FIND and "_id" in query.filter:
        value = query.filter["_id"]
        if (
            not isinstance(value, Mapping)
            or "$eq" in value
            or not any(str(operator).startswith("$") for operator in value)
        ):
            return RECORD
    return query.operation.value


def kind_of(query: Query) -> str:
    """Kind of the result of one query: its collection and its class, `shop.items:find`."""
    return f"{query.namespace}:{query_class(query)}"


def kind_of_result(queries: Iterable[Query], *, ignored: str) -> str:
    """Kind of a result that was made of these queries: theirs, sorted, with a space between.

    ignored: a namespace that counts for nothing.
    """
    return " ".join(sorted({kind_of(query) for query in queries if query.namespace != ignored}))


@lru_cache(maxsize=4_096)
def collections_of(kind: str) -> str:
    """Collections of a kind, sorted, with a space between: the kind without classes. A kind without a class stays as it is."""
    *collections, rest = _CLASSES.split(kind)
    return " ".join(sorted(set(collections))) if collections and not rest else kind
