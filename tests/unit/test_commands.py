"""Command documents, as drivers send them, and what capture makes of each. One row is one promise."""

from __future__ import annotations

import datetime
import decimal
import enum
import re
import uuid
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from quaestor.capture.commands import HARMLESS, WRITES, Understood, understand
from quaestor.model import Operation, Query, Uncacheable

ENVELOPE = {"lsid": {"id": bson.Binary(b"0" * 16, 4)}, "$db": "db", "$clusterTime": {}}


def of(command: dict[str, Any], **options: Any) -> Understood:
    return understand(next(iter(command)), command | ENVELOPE, "db", **options)


def query(command: dict[str, Any]) -> Query:
    understood = of(command)
    assert understood.reasons == ()
    assert understood.query is not None
    return understood.query


def expected(operation: Operation, **fields: Any) -> Query:
    return Query(namespace="db.c", operation=operation, **({"filter": {}} | fields))


FIND, COUNT, DISTINCT, AGGREGATE = Operation.FIND, Operation.COUNT, Operation.DISTINCT, Operation.AGGREGATE
COUNTING = {"$group": {"_id": 1, "n": {"$sum": 1}}}


def pipeline(*stages: dict[str, Any]) -> dict[str, Any]:
    return {"aggregate": "c", "pipeline": list(stages)}


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ({"find": "c"}, expected(FIND)),
        ({"find": "c", "filter": {"a": 1}, "limit": 0, "skip": 0}, expected(FIND, filter={"a": 1})),
        ({"find": "c", "filter": {}, "limit": 5, "singleBatch": True}, expected(FIND, limit=5)),
        ({"find": "c", "limit": -5}, expected(FIND, limit=5)),
        ({"find": "c", "limit": bson.Int64(7), "skip": 2.0}, expected(FIND, limit=7, skip=2)),
        ({"find": "c", "sort": {"b": -1, "a": 1}}, expected(FIND, sort=(("b", -1), ("a", 1)))),
        ({"find": "c", "sort": bson.SON([("b", -1), ("a", 1)])}, expected(FIND, sort=(("b", -1), ("a", 1)))),
        (
            {"find": "c", "sort": {"s": {"$meta": "textScore"}}},
            expected(FIND, sort=(("s", {"$meta": "textScore"}),)),
        ),
        ({"find": "c", "projection": {"a": 1, "_id": 0}}, expected(FIND, projection={"a": 1, "_id": 0})),
        ({"find": "c", "collation": {"locale": "en"}}, expected(FIND, collation={"locale": "en"})),
        (
            {"find": "c", "filter": {"$expr": {"$eq": ["$a", "$$x"]}}, "let": {"x": 3}},
            expected(FIND, filter={"$expr": {"$eq": ["$a", "$$x"]}}, let={"x": 3}),
        ),
        (
            {
                "find": "c",
                "batchSize": 3,
                "maxTimeMS": 5,
                "comment": "x",
                "allowDiskUse": True,
                "noCursorTimeout": True,
            },
            expected(FIND),
        ),
        ({"find": "c", "readConcern": {"level": "majority"}}, expected(FIND)),
        ({"find": "c", "readConcern": {"afterClusterTime": bson.Timestamp(1, 1)}}, expected(FIND)),
        ({"count": "c", "query": {"a": 1}, "limit": -3}, expected(COUNT, filter={"a": 1}, limit=3)),
        ({"distinct": "c", "key": "a.b"}, expected(DISTINCT, distinct_key="a.b")),
        ({"distinct": "c", "key": "a", "query": {"b": 1}}, expected(DISTINCT, distinct_key="a", filter={"b": 1})),
        (
            {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, COUNTING], "cursor": {}},
            expected(COUNT, filter={"a": 1}),
        ),
        (
            {"aggregate": "c", "pipeline": [{"$match": {}}, {"$skip": 3}, {"$limit": 9}, COUNTING]},
            expected(COUNT, skip=3, limit=9),
        ),
        (
            {"aggregate": "c", "pipeline": [{"$match": {}}, {"$limit": 9}, {"$skip": 3}, COUNTING]},
            expected(COUNT, skip=3, limit=6),
        ),
        (
            {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$group": {"_id": 1, "n": {"$sum": 2}}}]},
            expected(AGGREGATE, pipeline=({"$match": {"a": 1}}, {"$group": {"_id": 1, "n": {"$sum": 2}}})),
        ),
        ({"aggregate": "c", "pipeline": [COUNTING]}, expected(AGGREGATE, pipeline=(COUNTING,))),
        ({"aggregate": "c", "pipeline": []}, expected(FIND)),
        (
            {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$sort": {"b": 1, "_id": 1}}, {"$limit": 3}]},
            expected(FIND, filter={"a": 1}, sort=(("b", 1), ("_id", 1)), limit=3),
        ),
        (
            pipeline({"$match": {"a": 1}}, {"$sort": {"b": 1}}, {"$match": {"b": 2}}, {"$limit": 9}, {"$skip": 2}),
            expected(FIND, filter={"$and": [{"a": 1}, {"b": 2}]}, sort=(("b", 1),), skip=2, limit=7),
        ),
        (pipeline({"$limit": 3}, {"$limit": 2}), expected(FIND, limit=2)),
        (pipeline({"$skip": 1}, {"$limit": 9}, {"$skip": 2}, {"$limit": 8}), expected(FIND, skip=3, limit=7)),
        (
            pipeline({"$match": {"a": 1}}, {"$match": {"b": 2}}, {"$skip": 2}, {"$project": {"a": 1, "_id": 0}}),
            expected(FIND, filter={"$and": [{"a": 1}, {"b": 2}]}, skip=2, projection={"a": 1, "_id": 0}),
        ),
    ],
)
def test_a_command_becomes_the_query_it_runs(command: dict[str, Any], result: Query) -> None:
    assert query(command) == result


@pytest.mark.parametrize(
    "stages",
    [
        [{"$limit": 3}, {"$sort": {"b": 1}}],
        [{"$limit": 3}, {"$match": {"b": 1}}],
        [{"$sort": {"b": 1}}, {"$sort": {"c": 1}}],
        [{"$limit": 3}, {"$skip": 3}],
        [{"$project": {"b": "$a"}}],
        [{"$project": {"a": 1}}, {"$match": {"b": 1}}],
        [{"$sort": {"b": 1}}, COUNTING],
        [{"$match": {}}, {"$project": {"a": 1}}, COUNTING],
        [{"$match": {"a": 1}, "$limit": 1}],
    ],
)
def test_stages_in_another_order_than_a_find_has_stay_a_pipeline(stages: list[dict[str, Any]]) -> None:
    assert query(pipeline(*stages)) == expected(AGGREGATE, pipeline=tuple(stages))


@pytest.mark.parametrize(
    "command",
    [
        {"count": "c"},
        {"count": "c", "query": {}},
        {"find": "c", "hint": "a_1"},
        {"find": "c", "hint": {"a": 1}},
        {"find": "c", "min": {"a": 1}, "max": {"a": 3}, "hint": {"a": 1}},
        {"find": "c", "returnKey": True},
        {"find": "c", "showRecordId": True},
        {"find": "c", "filter": {"_id": uuid.uuid4()}},
        {"find": "c", "filter": {"price": decimal.Decimal(1)}},
    ],
)
def test_results_that_a_filter_does_not_decide_depend_on_the_collection(command: dict[str, Any]) -> None:
    assert query(command).widened


NOW = datetime.datetime(2024, 5, 5, 12, 0, 0)
CLOCK, RANDOM, SCRIPT = Uncacheable.CLOCK, Uncacheable.RANDOM, Uncacheable.SERVER_SIDE_SCRIPT
UNREADABLE, WROTE = Uncacheable.UNREADABLE, Uncacheable.WROTE


class Unencodable:
    pass


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ({"find": "c", "filter": {"$where": "this.a"}}, SCRIPT),
        ({"find": "c", "filter": {"$or": [{"a": 1}, {"$where": "this.a"}]}}, SCRIPT),
        ({"find": "c", "filter": {"$expr": {"$function": {"body": "", "args": [], "lang": "js"}}}}, SCRIPT),
        ({"find": "c", "filter": {"a": bson.Code("x")}}, SCRIPT),
        (pipeline({"$group": {"_id": 1, "n": {"$accumulator": {}}}}), SCRIPT),
        ({"find": "c", "filter": {"$expr": {"$lt": [{"$rand": {}}, 0.5]}}}, RANDOM),
        ({"find": "c", "filter": {"$sampleRate": 0.3}}, RANDOM),
        ({"find": "c", "projection": {"r": {"$rand": {}}}}, RANDOM),
        (pipeline({"$sample": {"size": 3}}), RANDOM),
        (pipeline({"$facet": {"x": [{"$sample": {"size": 3}}]}}), RANDOM),
        (pipeline({"$lookup": {"from": "d", "as": "x", "pipeline": [{"$sample": {"size": 3}}]}}), RANDOM),
        ({"find": "c", "filter": {"$expr": {"$gt": [{"$year": "$$NOW"}, "$year"]}}}, CLOCK),
        ({"find": "c", "projection": {"now": "$$NOW"}}, CLOCK),
        ({"find": "c", "let": {"now": "$$NOW"}}, CLOCK),
        (pipeline({"$set": {"t": "$$CLUSTER_TIME"}}), CLOCK),
        ({"find": "c", "filter": {"at": NOW.replace(microsecond=1234)}}, CLOCK),
        (pipeline({"$set": {"t": "$$USER_ROLES.role"}}), UNREADABLE),
        (pipeline({"$match": {}}, {"$out": "d"}), WROTE),
        (pipeline({"$merge": {"into": "d"}}), WROTE),
        (pipeline({"$changeStream": {}}), UNREADABLE),
        (pipeline({"$collStats": {}}), UNREADABLE),
        (pipeline({"$indexStats": {}}), UNREADABLE),
        (pipeline({"$search": {}}), UNREADABLE),
        (pipeline({"$fromTheFuture": {}}), UNREADABLE),
        ({"aggregate": 1, "pipeline": [{"$currentOp": {}}]}, UNREADABLE),
        (pipeline() | {"explain": True}, UNREADABLE),
        ({"explain": {"find": "c"}}, UNREADABLE),
        ({"find": "system.views"}, UNREADABLE),
        ({"find": "c", "tailable": True}, UNREADABLE),
        ({"find": "c", "awaitData": True, "tailable": True}, UNREADABLE),
        ({"find": "c", "allowPartialResults": True}, UNREADABLE),
        ({"find": "c", "optionOfTheFuture": 1}, UNREADABLE),
        ({"find": "c", "filter": {"a": Unencodable()}}, UNREADABLE),
        ({"listCollections": 1}, UNREADABLE),
        ({"listIndexes": "c"}, UNREADABLE),
        ({"dbStats": 1}, UNREADABLE),
        ({"serverStatus": 1}, UNREADABLE),
        ({"commandOfTheFuture": 1}, UNREADABLE),
        ({"findandmodify": "c"}, WROTE),
        ({"findAndModify": "c"}, WROTE),
        ({"mapReduce": "c"}, WROTE),
        ({"find": "c", "autocommit": False, "startTransaction": True}, Uncacheable.TRANSACTION),
        ({"find": "c", "readConcern": {"level": "snapshot"}}, Uncacheable.SNAPSHOT),
        ({"find": "c", "readConcern": {"atClusterTime": bson.Timestamp(1, 1)}}, Uncacheable.SNAPSHOT),
    ],
)
def test_commands_that_no_write_invalidates_are_not_cached(command: dict[str, Any], reason: Uncacheable) -> None:
    assert {reason for reason, _ in of(command).reasons} == {reason}


@pytest.mark.parametrize("database", ["admin", "local", "config"])
def test_system_databases_have_no_change_streams(database: str) -> None:
    assert understand("find", {"find": "c"}, database).reasons[0].reason is UNREADABLE


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_harmless_commands_leave_no_trace(name: str) -> None:
    assert understand(name, {name: 1}, "admin") == Understood()


@pytest.mark.parametrize("name", sorted(WRITES))
def test_writes_are_writes_in_any_spelling(name: str) -> None:
    assert [reason for reason, _ in understand(name.upper(), {name: 1}, "db").reasons] == [WROTE]


MS = 1_714_910_400_000


@pytest.mark.parametrize(
    ("value", "instants"),
    [
        (NOW, [MS]),
        (NOW.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2))), [MS - 7_200_000]),
        (DatetimeMS(MS), [MS]),
        (bson.Timestamp(MS // 1000, 7), [MS]),
        (MS, [MS]),
        (bson.Int64(MS), [MS]),
        (MS // 1000, [MS]),
        (MS / 1000, [MS]),
        ("2024-05-05T12:00:00Z", [MS]),
        ("2024-05-05 14:00:00+02:00", [MS]),
        ("2024-05-05 is a nice day", []),
        (bson.ObjectId(), []),
        (True, []),
        (5, []),
        ("JFK", []),
    ],
)
@pytest.mark.parametrize("place", ["filter", "list", "let", "pipeline", "distinct"])
def test_every_point_in_time_is_found_wherever_it_stands(value: Any, instants: list[int], place: str) -> None:
    command: dict[str, Any] = {
        "filter": {"find": "c", "filter": {"$and": [{"at": {"$gt": value}}]}},
        "list": {"find": "c", "filter": {"at": {"$in": [[value]]}}},
        "let": {"find": "c", "let": {"x": value}},
        "pipeline": pipeline({"$facet": {"a": [{"$match": {"at": value}}]}}),
        "distinct": {"distinct": "c", "key": "k", "query": {"at": {"$lt": value}}},
    }[place]
    understood = of(command)
    assert understood.reasons == ()
    assert list(understood.instants) == instants


class Colour(enum.StrEnum):
    RED = "red"


class OldColour(str, enum.Enum):  # noqa: UP042 - what applications had before StrEnum
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Colour.RED, "red"),
        (OldColour.RED, "red"),
        (Size.BIG, 3),
        (NOW.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2))), NOW.replace(hour=10)),
        (bson.DBRef("d", 1), {"$ref": "d", "$id": 1}),
        ((1, 2), [1, 2]),
        (bson.SON([("b", 1), ("a", 2)]), {"b": 1, "a": 2}),
        (RawBSONDocument(bson.encode({"a": {"b": [1]}})), {"a": {"b": [1]}}),
        (bson.Int64(5), bson.Int64(5)),
        (re.compile("^x", re.I), re.compile("^x", re.I)),
        (bson.Regex("^x"), bson.Regex("^x")),
    ],
)
def test_values_are_copied_to_what_mongod_is_sent(value: Any, stored: Any) -> None:
    copied = query({"find": "c", "filter": {"a": value}}).filter
    assert copied == {"a": stored}
    assert type(copied["a"]) is type(stored)
    assert bson.encode(copied) == bson.encode({"a": value})


def test_the_copy_shares_nothing_that_can_change() -> None:
    filter_: dict[str, Any] = {"a": {"$in": [1, {"b": [2]}]}}
    copied = query({"find": "c", "filter": filter_}).filter
    filter_["a"]["$in"][1]["b"].append(3)
    assert copied == {"a": {"$in": [1, {"b": [2]}]}}


def test_native_uuids_become_what_their_collection_stores() -> None:
    value = uuid.uuid4()
    for representation in (3, 4, 5, 6):
        understood = of({"find": "c", "filter": {"_id": value}}, uuid_representation=lambda r=representation: r)
        assert understood.query is not None
        assert understood.query.filter == {"_id": bson.Binary.from_uuid(value, representation)}


@pytest.mark.parametrize(
    ("projection", "keeps"),
    [
        (None, True),
        ({"a": 1}, True),
        ({"_id": 1}, True),
        ({"_id": 0, "a": 1}, True),
        ({"_id": "$other"}, False),
        ({"_id": {"$toString": "$_id"}}, False),
        ({"_id.part": 1}, False),
    ],
)
def test_records_count_as_records_only_with_their_own_id(projection: dict[str, Any] | None, keeps: bool) -> None:
    command: dict[str, Any] = {"find": "c"} | ({"projection": projection} if projection else {})
    assert of(command).keeps_records is keeps


@pytest.mark.parametrize(
    ("preference", "primary"),
    [(None, True), ({"mode": "primary"}, True), ({"mode": "nearest"}, False), ({"mode": "secondaryPreferred"}, False)],
)
def test_a_preference_for_the_primary_is_recognised(preference: dict[str, Any] | None, primary: bool) -> None:
    command: dict[str, Any] = {"find": "c"} | ({"$readPreference": preference} if preference else {})
    assert of(command).primary_preference is primary
