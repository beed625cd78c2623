"""Order that an index decides: fields that a result depends on although neither filter, sort nor projection names them.

Without a sort, and among equals of a sort, records come in the order in which the database finds them. Through a compound index
that is the order of the index's other fields: with `{a: 1, b: 1}` the records of `{a: 5}` come by `b`. A change of `b` then
moves a record, cuts another one off at a limit, or changes the input of `$push` and `$first`. Through any other index, and
without one, an update of unread fields does not move records. An update of the filter's fields does, even through an index on one
field. With `{a: 1}` the records of `{a: {$in: [1, 2]}}` come by `a`, and a sort leaves equals in that order.
https://www.mongodb.com/docs/manual/core/indexes/index-types/index-compound/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from quaestor.model import Document, Query
from quaestor.planning.relevant_fields import ALL, Fields

UNKNOWN: Final = (("$**",),)
"""Keys of indexes that could not be listed: any field may be part of one."""
ANY_FIELD: Final = "$*"
"""The key of a wildcard index, which is an index on each single field."""
ANY_INDEX: Final = "$**"
"""The first field of an unknown index."""
NOTHING: Final = Fields(())
_OF_NO_ORDER: Final = frozenset({"$sum", "$avg", "$min", "$max", "$count", "$stdDevPop", "$stdDevSamp"})


def leaves_order_open(query: Query, stages: Sequence[Document] | None) -> bool:
    """Whether the order in which records are found can show in the result.

    stages: of a pipeline that is no find, the stages after its leading `$match`.
    """
    if stages is None:
        return all(path != "_id" for path, _ in query.sort)
    names = [next(iter(stage), "") for stage in stages]
    if names[-2:] != ["$group", "$sort"] or not {*names[:-2]} <= {
        "$match",
        "$project",
        "$set",
        "$addFields",
        "$unset",
        "$unwind",
    }:
        return True
    return "_id" not in stages[-1]["$sort"] or not _of_no_order(stages[-2]["$group"])


def _of_no_order(group: Any) -> bool:
    if not isinstance(group, Mapping):
        return False
    return all(
        isinstance(value, Mapping) and _OF_NO_ORDER.issuperset(value) for name, value in group.items() if name != "_id"
    )


def may_find_by(first_fields: Iterable[str], found_by: Fields | None) -> bool:
    """Whether an index with one of these first fields may decide a result. An index on `_id` may, as `Fields` never names `_id`.

    found_by: see QueryPlan.
    """
    return found_by is not None and any(
        field == "_id" or "$" in field or not found_by.untouched((field,)) for field in first_fields
    )


def first_fields_that_differ(before: Iterable[Sequence[str]], after: Iterable[Sequence[str]]) -> frozenset[str]:
    """Return the first fields of the indexes that are in only one of these listings."""
    return frozenset(key[0] for key in set(map(tuple, before)) ^ set(map(tuple, after)))


def tied_fields(index_keys: Iterable[Sequence[str]], read: Fields, filtered: Fields = NOTHING) -> Fields:
    """Return the fields by which these indexes may order the records that are found by the fields that are read.

    filtered: fields by which an index on one field may find a record, if only that order can show a change of them.
    """
    tied: set[str] = set()
    for key in index_keys:
        if key[0] == "$**" or (key[0] == ANY_FIELD and filtered == ALL):
            return ALL
        if key[0] == ANY_FIELD:
            tied.update(filtered.shown)
        elif not (read if len(key) > 1 else filtered).untouched(key[:1]):
            tied.update(key)
    return Fields(tuple(sorted(tied - {"_id"})))


def also(fields: Fields, tied: Fields) -> Fields:
    """Return both sets of fields together."""
    if not tied.shown and tied != ALL:
        return fields
    return ALL if ALL in (fields, tied) else Fields(tuple(sorted({*fields.shown, *tied.shown})), fields.hidden)
