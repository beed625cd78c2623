"""Where `$text` counts as searching, and what of an index's definition decides."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.capture.text_indexes import holds_text, reduced, searches
from quaestor.capture.views import Definition, Kind, resolve
from quaestor.model import CapturedRead, Operation, Query, Uncacheable

SEARCH: dict[str, Any] = {"$text": {"$search": "dog"}}


@pytest.mark.parametrize(
    "condition", [SEARCH, {"n": 1, **SEARCH}, {"$and": [{"n": 1}, {"$or": [SEARCH, {"n": 2}]}]}, {"$or": [SEARCH]}]
)
def test_text_is_found_where_mongod_allows_it(condition: dict[str, Any]) -> None:
    assert holds_text(condition)
    assert searches(Query(namespace="d.c", operation=Operation.FIND, filter=condition))
    pipeline = ({"$match": {"n": 1}}, {"$match": condition}, {"$group": {"_id": "$n"}})
    assert searches(Query(namespace="d.c", operation=Operation.AGGREGATE, filter={}, pipeline=pipeline))


@pytest.mark.parametrize("condition", [{}, {"text": 1}, {"$and": 7}, {"a": {"$eq": SEARCH}}, {"$nor": [{"n": 1}]}])
def test_anything_else_is_no_search(condition: dict[str, Any]) -> None:
    assert not searches(Query(namespace="d.c", operation=Operation.FIND, filter=condition))


def test_only_a_leading_match_searches() -> None:
    pipeline = ({"$sort": {"a": 1}}, {"$match": SEARCH})
    assert not searches(Query(namespace="d.c", operation=Operation.AGGREGATE, filter={}, pipeline=pipeline))


def test_the_name_of_an_index_decides_nothing() -> None:
    index = {"name": "a", "weights": {"b": 2, "a": 1}, "default_language": "none", "textIndexVersion": 3}
    other = {"name": "b", "weights": {"a": 1, "b": 2}, "default_language": "none", "textIndexVersion": 3, "v": 2}
    assert repr(reduced(index)) == repr(reduced(other))


def test_a_capped_collection_that_drops_in_silence_is_refused_also_below_a_view() -> None:
    definitions = {
        "d.c": Definition(kind=Kind.COLLECTION, capped=True),
        "d.v": Definition(kind=Kind.VIEW, view_on="d.c"),
    }
    for namespace in definitions:
        query = Query(namespace=namespace, operation=Operation.FIND, filter={"a": 1})
        read = CapturedRead(query=query, read_at=1, ids=())
        (reason,) = resolve([read], definitions.get, capped_deletes_reported=False).reasons
        assert reason.reason is Uncacheable.UNREADABLE
        assert resolve([read], definitions.get).reasons == ()
