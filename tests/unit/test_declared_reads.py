"""Declared reads: the declarations that an origin may send about its queries, and their effect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quaestor.capture import declared
from quaestor.capture.recorder import Recorder
from quaestor.errors import MalformedQueryError
from quaestor.model import Operation, Uncacheable

NOW_MS = 1_700_000_000_000


def parse(*items: Any, database: str | None = "shop") -> declared.Declaration:
    return declared.parse(json.dumps(items), database=database)


def recorded(*items: Any, since: int = 7) -> Recorder:
    recorder = Recorder()
    declared.record(recorder, parse(*items), since=since, duration_ms=5.0)
    return recorder


def test_a_query_means_what_the_same_command_would_mean() -> None:
    (read,) = recorded(
        {"collection": "items", "filter": {"a": 1}, "sort": "b,-_id", "skip": 2, "limit": 3, "projection": {"a": 1}}
    ).outcome(NOW_MS).reads  # fmt: skip
    query = read.query
    assert (query.namespace, query.operation, query.filter) == ("shop.items", Operation.FIND, {"a": 1})
    assert (query.sort, query.skip, query.limit, query.projection) == ((("b", 1), ("_id", -1)), 2, 3, {"a": 1})
    assert (read.read_at, read.ids, read.primary) == (7, None, True)


@pytest.mark.parametrize(
    ("item", "operation"),
    [
        ({"collection": "items"}, Operation.FIND),
        ({"collection": "items", "filter": {"a": 1}, "count": True}, Operation.COUNT),
        ({"collection": "items", "count": True}, Operation.COUNT),
        ({"collection": "items", "filter": {"a": 1}, "distinct": "b"}, Operation.DISTINCT),
        ({"collection": "items", "pipeline": [{"$match": {"a": 1}}, {"$group": {"_id": "$b"}}]}, Operation.AGGREGATE),
        ({"collection": "items", "pipeline": [{"$match": {"a": 1}}, {"$limit": 3}]}, Operation.FIND),
    ],
)
def test_every_kind_of_read_can_be_declared(item: dict[str, Any], operation: Operation) -> None:
    outcome = recorded(item).outcome(NOW_MS)
    assert outcome.reasons == ()
    assert [read.query.operation for read in outcome.reads] == [operation]


@pytest.mark.parametrize(
    ("item", "database", "namespace"),
    [
        ({"collection": "items"}, "shop", "shop.items"),
        ({"collection": "other.items"}, None, "other.items"),
        ({"collection": "shop.items"}, "shop", "shop.items"),
        ({"collection": "fs.files"}, "shop", "shop.fs.files"),
        ({"collection": "fs.files", "database": "other"}, "shop", "other.fs.files"),
    ],
)
def test_a_collection_is_found_with_or_without_its_database(
    item: dict[str, Any], database: str | None, namespace: str
) -> None:
    (read,) = parse(item, database=database).reads
    assert read.understood.query is not None
    assert read.understood.query.namespace == namespace


def test_reads_that_no_write_can_report_forbid_caching() -> None:
    reasons = recorded(
        {"collection": "items", "filter": {"$where": "1"}},
        {"collection": "items", "filter": {"at": {"$gt": {"$date": "2023-11-14T22:13:20Z"}}}},
    ).outcome(NOW_MS).reasons  # fmt: skip
    assert {reason.reason for reason in reasons} == {Uncacheable.SERVER_SIDE_SCRIPT, Uncacheable.CLOCK}


def test_a_read_on_a_secondary_is_dated_by_its_own_operation_time() -> None:
    (read,) = recorded(
        {"collection": "a", "secondary": True, "operationTime": {"$timestamp": {"t": 3, "i": 4}}}
    ).outcome(NOW_MS).reads  # fmt: skip
    assert (read.read_at, read.primary) == (3 << 32 | 4, False)


def test_before_the_grid_is_known_nothing_can_be_dated() -> None:
    (reason,) = recorded({"collection": "items"}, since=0).outcome(NOW_MS).reasons
    assert reason.reason is Uncacheable.NO_OPERATION_TIME


def test_tags_stand_beside_queries() -> None:
    declaration = parse({"tag": "prices"}, {"collection": "items"}, {"tag": "prices"})
    assert (declaration.tags, len(declaration.reads)) == (("prices",), 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "an array in"),
        ("{", "an array in"),
        ("{}", "at least one query"),
        ("[]", "at least one query"),
        ("[1]", "query 0: it is an object"),
        ("[{}]", "query 0: collection is a name"),
        ('[{"collection": 1}]', "collection is a name"),
        ('[{"collection": "items"}]', "name it"),
        ('[{"collection": "d.c", "filtr": {}}]', "unknown or contradicting: filtr"),
        ('[{"collection": "d.c", "pipeline": [], "filter": {}}]', "unknown or contradicting: filter"),
        ('[{"collection": "d.c", "pipeline": {}}]', "pipeline is an array"),
        ('[{"collection": "d.c", "filter": []}]', "filter is an object"),
        ('[{"collection": "d.c", "filter": {"$foo": 1}}]', "foo"),
        ('[{"collection": "d.c", "filter": {"a": {"$date": "never"}}}]', "an array in"),
        ('[{"collection": "d.c", "limit": -1}]', "limit is a number from 0"),
        ('[{"collection": "d.c", "limit": true}]', "limit is a number from 0"),
        ('[{"collection": "d.c", "limit": 1e99}]', "limit is a number from 0"),
        ('[{"collection": "d.c", "sort": 1}]', "sort is an object or fields"),
        ('[{"collection": "d.c", "sort": "a,,b"}]', "sort is an object or fields"),
        ('[{"collection": "d.c", "count": 1}]', "count is true or false"),
        ('[{"collection": "d.c", "count": true, "sort": "a"}]', "count does not go with sort"),
        ('[{"collection": "d.c", "distinct": 1}]', "distinct is a field name"),
        ('[{"collection": "d.c", "secondary": true}]', "needs its operationTime"),
        ('[{"collection": "d.c", "operationTime": 1}]', "operationTime is"),
        ('[{"tag": "a b"}]', "is no tag"),
        ('[{"tag": 1}]', "is no tag"),
        ('[{"collection": "d.c", "filter": ' + '{"a":' * 60 + "1" + "}" * 60 + "}]", "levels deep"),
        ("[" * 100_000, "at most"),
        ("[" * 30_000, "an array in"),
        ("[" + ",".join(['{"collection":"d.c"}'] * 65) + "]", "at most 64 queries"),
    ],
)
def test_an_object_that_is_no_declaration_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(MalformedQueryError) as refused:
        declared.parse(text)
    assert sentence in str(refused.value)
    assert len(str(refused.value)) < 600


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(MalformedQueryError):
        declared.parse(b"[\xff]")
