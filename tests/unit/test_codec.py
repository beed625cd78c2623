"""The wire format: nothing is lost on the way, and its bytes do not change by accident."""

from __future__ import annotations

import datetime
import re
import uuid
from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument

from quaestor.errors import EventLayerError, UnsupportedQueryError
from quaestor.event_layer import codec
from quaestor.model import (
    Activated,
    AfterImage,
    Cancellation,
    Cell,
    Contributors,
    GridShape,
    Heartbeat,
    Invalidated,
    InvalidationSource,
    MatchType,
    Notification,
    Operation,
    OutsideGrid,
    Query,
    Refused,
    Registration,
    Usage,
    WriteKind,
)
from quaestor.planning.followed_query import FollowedQuery

CELL = Cell(query_partition=1, write_partition=2)
VERSION = 1_700_000_000 << 32 | 7

VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "int32": 2**31 - 1,
    "int64": Int64(5),
    "large": Int64(2**63 - 1),
    "double": 5.0,
    "negative zero": -0.0,
    "infinity": float("inf"),
    "decimal": Decimal128("1.10"),
    "decimal nan": Decimal128("NaN"),
    "text": "é\x00\U0001f600",
    "date": datetime.datetime(2013, 1, 1, 5, 15, 0, 123000),
    "year 20000": DatetimeMS(569_000_000_000_000),
    "before year 1": DatetimeMS(-99_999_999_999_999),
    "object id": ObjectId("64d2b2a4f0c1a2b3c4d5e6f7"),
    "bytes": b"\x00\x01",
    "uuid": Binary(uuid.UUID(int=5).bytes, 4),
    "legacy uuid": Binary(uuid.UUID(int=5).bytes, 3),
    "not quite a uuid": Binary(b"short", 4),
    "user binary": Binary(b"x", 0x80),
    "regex": Regex("^a.*b$", re.I.value | re.M.value),
    "code": Code("f()"),
    "scoped code": Code("f()", {"x": Int64(1)}),
    "timestamp": Timestamp(1, 2),
    "min": MinKey(),
    "max": MaxKey(),
    "reference": DBRef("airports", "JFK", "db", extra=1),
    "document": {"b": 1, "a": [1, {"c": None}], "": {}, "$odd.name": 1},
    "array": [Int64(1), 1, 1.0, "1", [], {}],
}


def types(value: Any) -> Any:
    """The value with every type made visible: 1, Int64(1), 1.0 and True are equal in Python."""
    if isinstance(value, dict):
        return [(name, types(member)) for name, member in value.items()]
    if isinstance(value, list):
        return [types(member) for member in value]
    if isinstance(value, Binary):
        return (Binary, value.subtype, bytes(value))
    return (type(value), repr(value))


def readable(value: Any) -> bool:
    """Whether the driver itself can decode the value: before PyMongo 4.20 it refuses a UUID of another length."""
    try:
        bson.decode(bson.encode({"value": value}), codec.BSON_OPTIONS)
    except InvalidBSON:
        return False
    return True


@pytest.mark.parametrize("name", VALUES)
def test_every_bson_value_survives_as_key_and_inside_documents(name: str) -> None:
    value = VALUES[name]
    if not readable(value):
        pytest.skip("this driver cannot decode such a value")
    image = AfterImage(
        namespace="db.c", kind=WriteKind.UPDATE, version=VERSION, key=value, after={"_id": value, "x": [value]},
        after_exact=True, before={"x": {"y": value}}, before_known=True, changed=("x.0", "é"),
        wall_ms=1_700_000_000_123,
    )  # fmt: skip
    decoded = codec.decode_image(codec.encode_image(image))
    assert types(decoded.key) == types(image.key)
    assert types(decoded.after) == types(image.after)
    assert types(decoded.before) == types(image.before)
    assert decoded == image


def test_a_raw_document_travels_byte_for_byte_and_is_decoded_like_any_other() -> None:
    """Duplicate and oddly ordered fields included: what mongod sent is what the node decodes."""
    raw = bson.encode({"$id": 1, "$ref": "x"}) + b""
    image = AfterImage(namespace="db.c", kind=WriteKind.INSERT, version=1, key=1, after=RawBSONDocument(raw))
    assert raw in codec.encode_image(image)


def test_a_node_that_does_not_look_at_the_documents_does_not_pay_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    image = AfterImage(
        namespace="db.c", kind=WriteKind.INSERT, version=VERSION, key=1, after={"x": 1}, before={"x": 2}, wall_ms=5
    )
    payload = codec.encode_image(image)
    decoded_sizes: list[int] = []
    plain = bson.decode

    def counting(data: bytes, options: Any) -> Any:
        decoded_sizes.append(len(data))
        return plain(data, options)

    monkeypatch.setattr(bson, "decode", counting)
    decoded = codec.decode_image(payload)
    assert (decoded.namespace, decoded.kind, decoded.version, decoded.key) == ("db.c", WriteKind.INSERT, VERSION, 1)
    assert decoded_sizes == [len(payload)]
    assert decoded.after == {"x": 1}
    assert decoded.after is decoded.after
    assert len(decoded_sizes) == 2


@pytest.mark.parametrize("kind", list(WriteKind))
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_flags_and_missing_documents_are_distinguished(kind: WriteKind, exact: bool, known: bool) -> None:
    changed = () if exact else None
    image = AfterImage(
        namespace="*", kind=kind, version=VERSION, after_exact=exact, before_known=known, changed=changed
    )
    decoded = codec.decode_image(codec.encode_image(image))
    assert decoded == image
    assert decoded.after is None
    assert decoded.before is None


REGISTRATIONS = [
    Registration(
        id="app-1:7", tenant="t", query_id="f" * 32, since=VERSION, read_at=VERSION + 1, expires_at_ms=2**41,
        query=Query(namespace="db.c", operation=Operation.COUNT, filter={}), members=None, last=None,
    ),
    Registration(
        id="app-1:8", tenant="t", query_id="0" * 32, since=0, read_at=VERSION, expires_at_ms=1,
        query=Query(
            namespace="db.c.d", operation=Operation.FIND, filter={"a": {"$gt": Int64(5)}, "$or": [{"b.c": None}]},
            sort=(("a", 1), ("score", {"$meta": "textScore"}), ("_id", -1)), skip=5, limit=10, projection={"a": 1},
            collation={"locale": "de"}, let={"x": 1},
        ),
        members=(1, Int64(2), ObjectId("64d2b2a4f0c1a2b3c4d5e6f7"), {"a": 1}), last={"a": 1, "_id": {"a": 1}},
    ),
    Registration(
        id="app-1:9", tenant="", query_id="1" * 32, since=1, read_at=1, expires_at_ms=1,
        query=Query(
            namespace="db.c", operation=Operation.AGGREGATE, filter={}, pipeline=({"$match": {"x": re.compile("a")}},),
            widened="pipeline",
        ),
        members=(), last=None,
    ),
    Registration(
        id="app-1:10", tenant="", query_id="1" * 32, since=1, read_at=1, expires_at_ms=1,
        query=Query(namespace="db.c", operation=Operation.DISTINCT, filter={"x": 1}, distinct_key="carrier"),
        members=None, last=None,
    ),
    Registration(
        id="app-1:12", tenant="", query_id="1" * 32, since=1, read_at=1, expires_at_ms=1,
        query=FollowedQuery(
            namespace="db.c", operation=Operation.AGGREGATE, filter={}, stands_for=Operation.COUNT,
            views=({"view": "db.v", "reads": ["db.c", "db.d"], "definition": "2" * 32},),
        ),
        members=(), last=None,
    ),
    Registration(
        id="app-1:11", tenant="", query_id="1" * 32, since=1, read_at=1, expires_at_ms=1,
        query=Query(namespace="db.c", operation=Operation.FIND, filter={"x": 1}, projection={"y": {"$slice": 1}}),
        members=(1, 2), last=None,
        contributors=Contributors(version=5, records=({"_id": 1}, {"_id": 2}), complete=True, digests=(b"one", b"")),
    ),
]  # fmt: skip


@pytest.mark.parametrize("registration", REGISTRATIONS, ids=lambda r: f"{r.query.operation.value} {r.id}")
def test_registrations_survive_their_encoding(registration: Registration) -> None:
    decoded = codec.decode_query_event(codec.encode_query_event(registration))
    assert isinstance(decoded, Registration)
    if registration.query.pipeline:  # a compiled pattern comes back as the BSON regex that it is
        assert decoded.query.pipeline == ({"$match": {"x": Regex("a", re.UNICODE)}},)
        return
    assert decoded == registration
    assert types(decoded.query.filter) == types(registration.query.filter)
    assert types(list(decoded.members or ())) == types(list(registration.members or ()))


def test_a_cancellation_survives_its_encoding() -> None:
    cancellation = Cancellation(tenant="t", query_id="q", registration_ids=("a:1", "a:2"))
    assert codec.decode_query_event(codec.encode_query_event(cancellation)) == cancellation


@pytest.mark.parametrize(
    "usage",
    [Usage(tenant="t"), Usage(tenant="t", queries=(("q", 3), ("r", 2**40)), registrations=(("app:1.$x", 1),))],
    ids=["empty", "full"],
)
def test_a_report_of_what_was_read_survives(usage: Usage) -> None:
    assert codec.decode_query_event(codec.encode_query_event(usage)) == usage


NOTIFICATIONS: list[Notification] = [
    Activated(registration_id="a:1", cell=CELL, write_rate_hz=0.25),
    Refused(registration_id="a:1", cell=CELL, reason="older than the retention"),
    Invalidated(
        registration_ids=("a:1", "b:2"), query_id="q", match_type=MatchType.CHANGE_INDEX, version=VERSION,
        key={"origin": "JFK", "n": Int64(5)}, written_at_ms=1_700_000_000_123, source=CELL,
    ),
    Heartbeat(
        cell=CELL, shape=GridShape(query_partitions=2, write_partitions=3), at_ms=2**41, fresh_as_of_ms=2**41 - 1,
        watermark=VERSION, registrations=10**6, writes=2**40,
    ),
    Invalidated(
        registration_ids=("a:1",), query_id="q", match_type=MatchType.REMOVE, version=VERSION, key=1, written_at_ms=5,
        source=CELL, exact=True, certain=True,
    ),
]  # fmt: skip


@pytest.mark.parametrize("notification", NOTIFICATIONS, ids=lambda n: type(n).__name__)
def test_notifications_survive_their_encoding(notification: Notification) -> None:
    assert codec.decode_notification(codec.encode_notification(notification)) == notification


@pytest.mark.parametrize("source", [CELL, *OutsideGrid])
def test_an_invalidation_names_its_source_and_earlier_releases_can_read_it(source: InvalidationSource) -> None:
    """Earlier releases know only cells: a cell is written as before, and any other source carries a cell for them."""
    notification = Invalidated(
        registration_ids=("a:1",), query_id="q", match_type=MatchType.MATCH, version=VERSION, key=1, written_at_ms=5,
        source=source,
    )  # fmt: skip
    payload = codec.encode_notification(notification)
    assert codec.decode_notification(payload) == notification
    fields = bson.decode(payload)
    known = {"v", "t", "cell", "ids", "qid", "m", "ver", "key", "w"}
    assert fields.keys() - known == (set() if source == CELL else {"src"})
    as_before = bson.encode({name: fields[name] for name in known})
    cell = CELL if source == CELL else Cell(query_partition=0, write_partition=0)
    assert codec.decode_notification(as_before) == replace(notification, source=cell)


def test_the_bytes_on_the_wire_are_these() -> None:
    """Changing them needs a new format number: processes of two releases may share one event layer for a while."""
    image = AfterImage(
        namespace="db.c", kind=WriteKind.UPDATE, version=VERSION, key=1, after={"_id": 1}, after_exact=True, wall_ms=5
    )
    assert codec.encode_image(image).hex() == GOLDEN_IMAGE
    assert codec.encode_query_event(REGISTRATIONS[0]).hex() == GOLDEN_REGISTRATION
    assert codec.encode_notification(NOTIFICATIONS[0]).hex() == GOLDEN_ACTIVATED
    assert codec.encode_notification(NOTIFICATIONS[3]).hex() == GOLDEN_HEARTBEAT


def test_another_format_is_refused_with_the_remedy() -> None:
    with pytest.raises(EventLayerError, match="same release"):
        codec.decode_image(bson.encode({"v": 2, "t": "i"}))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"garbage",
        bson.encode({}),
        bson.encode({"v": 1}),
        bson.encode({"v": 1, "t": "h"}),
        bson.encode({"v": 1, "t": "i"}),
    ],
)
def test_bytes_that_are_no_image_are_refused(payload: bytes) -> None:
    with pytest.raises(EventLayerError):
        codec.decode_image(payload)


def test_a_native_uuid_is_refused_rather_than_guessed() -> None:
    """Clients lay UUIDs out in four ways; a wrong guess would never match."""
    query = Query(namespace="db.c", operation=Operation.FIND, filter={"x": uuid.UUID(int=1)})
    registration = Registration(
        id="a:1", tenant="t", query_id="q", query=query, since=1, read_at=1, members=None, last=None, expires_at_ms=1
    )
    with pytest.raises(UnsupportedQueryError):
        codec.encode_query_event(registration)


GOLDEN_IMAGE = (
    "6a00000010760001000000027400020000006900026b000700000075706461746500026e73000500000064622e6300127665"
    "72000700000000f1536510770005000000106b65790001000000106600010000000561000e000000000e000000105f696400"
    "010000000000"
)
GOLDEN_REGISTRATION = (
    "b90000001076000100000002740002000000720002696400080000006170702d313a37000274656e616e7400020000007400"
    "0271696400210000006666666666666666666666666666666666666666666666666666666666666666001273696e63650007"
    "00000000f15365126174000800000000f1536512657870000000000000020000037175657279002d000000026e7300050000"
    "0064622e6300026f700006000000636f756e74000366696c7465720005000000000000"
)
GOLDEN_ACTIVATED = (
    "4800000010760001000000027400020000002b000463656c6c00130000001030000100000010310002000000000269640004"
    "000000613a3100017261746500000000000000d03f00"
)
GOLDEN_HEARTBEAT = (
    "8b000000107600010000000274000200000068000463656c6c00130000001030000100000010310002000000000473686170"
    "650013000000103000020000001031000300000000126e6f7700000000000002000012667265736800ffffffffff01000012"
    "766572000700000000f1536510726567730040420f001277726974657300000000000001000000"
)
