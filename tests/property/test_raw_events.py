"""The raw way through ingest makes of an event what the decoded way makes of it, byte for byte, or leaves it to that."""

from __future__ import annotations

import datetime
import struct
import uuid
from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.event_layer.codec import decode_image, encode_image
from quaestor.event_layer.partitioning import record_key, write_partition
from quaestor.invalidation.ingest.change_events import RAW_OPTIONS, after_images, time_and_token
from quaestor.invalidation.ingest.raw_change_events import LackingRecord, key_of, payload_of, time_and_token_of
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.model import AfterImage

PARTITIONS = 3
DOCUMENT, ARRAY, STRING, NULL = b"\x03", b"\x04", b"\x02", b"\x0a"

Value = tuple[bytes, bytes]
"""Type and bytes of a BSON value."""


def value_of(plain: Any) -> Value:
    encoded = bson.encode({"": plain})
    return encoded[4:5], encoded[6:-1]


def document(*fields: tuple[bytes, Value]) -> bytes:
    content = b"".join(kind + name + b"\0" + data for name, (kind, data) in fields)
    return struct.pack("<i", len(content) + 5) + content + b"\0"


def text(data: bytes) -> Value:
    return STRING, struct.pack("<i", len(data) + 1) + data + b"\0"


def nested(depth: int) -> bytes:
    made = document((b"x", value_of(1)))
    for _ in range(depth):
        made = document((b"a.$b", (DOCUMENT, made)))
    return made


USUAL_KEYS = [
    value_of(key) for key in (ObjectId(), "key", "", "\0\U0001f600", "x" * 5_000, 7, -1, Int64(7), Int64(2**62))
]
VALUES = [
    *USUAL_KEYS,
    *map(
        value_of,
        [
            None, True, 1.5, -0.0, float("nan"), Decimal128("9" * 34 + "E+6000"), Decimal128("-NaN"),
            datetime.datetime(2013, 1, 1), Binary(uuid.UUID(int=5).bytes, 3),
            Binary(uuid.UUID(int=5).bytes, 4), Binary(b"short", 4), Binary(b"x", 2), Binary(b"x", 0x80), b"", Regex("^a", "mi"),
            Code("f()"), Code("f()", {"x": 1}), Timestamp(1, 2), MinKey(), MaxKey(), {"$ref": "a", "$id": 1}, [], [1, "1", {}],
        ],
    ),
    (b"\x06", b""),
    (b"\x0e", text(b"symbol")[1]),
    (b"\x0c", text(b"c")[1] + bytes(12)),
    text(b"\xff\xfe not UTF-8"),
    (DOCUMENT, document((b"a", value_of(1)), (b"a", value_of(2)))),
    (DOCUMENT, document((b"\xff", value_of(1)))),
    (DOCUMENT, nested(150)),
    (b"\x09", struct.pack("<q", 2**62)),
]  # fmt: skip
NAMES = [
    b"a",
    b"_id",
    b"",
    b"a.b",
    b"$set",
    b"fullDocument",
    b"documentKey",
    b"changed",
    b"\xc3\xa9",
    b"\xff",
    b"x" * 300,
]

values = st.sampled_from(VALUES)
documents = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=5).map(lambda fields: document(*fields))
paths = st.lists(st.sampled_from([*NAMES, b"list.0.x"]) | st.integers(0, 99).map(lambda n: b"f%d.x" % n), max_size=80)


@st.composite
def events(draw: st.DrawFn) -> bytes:
    operation = draw(st.sampled_from([b"insert", b"update", b"replace", b"delete", b"create"]))
    fields: list[tuple[bytes, Value]] = [
        (b"_id", (DOCUMENT, document((b"_data", text(b"8265" * draw(st.integers(1, 90)))))))
    ]
    if draw(st.integers(0, 9)) == 0:  # of a transaction
        fields.insert(0, (b"txnNumber", value_of(Int64(1))))
    fields.append((b"operationType", text(operation)))
    fields.append(
        (b"clusterTime", value_of(Timestamp(draw(st.integers(2**30, 2**31 - 1)), draw(st.integers(0, 2**32 - 1)))))
    )
    if draw(st.booleans()):
        fields.append((b"collectionUUID", value_of(Binary(uuid.UUID(int=7).bytes, 4))))
    if draw(st.integers(0, 9)):
        fields.append((b"wallTime", value_of(datetime.datetime(2026, 1, 2, 3, 4, 5, draw(st.integers(0, 999)) * 1000))))
    if operation != b"delete":
        fields.append((b"fullDocument", draw(documents.map(lambda made: (DOCUMENT, made)) | st.just((NULL, b"")))))
    database, collection = draw(st.sampled_from([(b"d", b"c"), (b"d", b"\xc3\xa9.x"), (b"d", b"\xff")]))
    fields.append((b"ns", (DOCUMENT, document((b"db", text(database)), (b"coll", text(collection))))))
    key = [(b"_id", draw(values))]
    if draw(st.integers(0, 9)) == 0:  # of a sharded collection
        key.insert(draw(st.integers(0, 1)), (b"shard", value_of(1)))
    fields.append((b"documentKey", (DOCUMENT, document(*key))))
    if operation != b"insert" and draw(st.booleans()):
        before = draw(documents.map(lambda made: (DOCUMENT, made)) | st.just((NULL, b"")))
        fields.append((b"fullDocumentBeforeChange", before))
    if operation == b"update":
        names = [(b"%d" % n, text(name)) for n, name in enumerate(draw(paths))]
        fields.append((b"changed", (ARRAY, document(*names))))
    if draw(st.integers(0, 9)) == 0:
        fields.append((b"unheardOf", draw(values)))
    return document(*fields)


def decoded_way(event: bytes, records: RecordSource) -> AfterImage | None:
    """The one image, None: there is none, or the event cannot be read."""
    try:
        images = after_images(RawBSONDocument(event, RAW_OPTIONS), records=records)
    except (BSONError, ValueError):
        return None
    return images[0] if len(images) == 1 else None


@settings(max_examples=1_500, deadline=None)
@given(events(), st.sampled_from([RecordSource.IMAGES, RecordSource.LOOKED_UP, RecordSource.NONE]))
def test_both_ways_agree_on_every_event_that_both_read(event: bytes, records: RecordSource) -> None:
    placed = payload_of(event, PARTITIONS, looked_up=records.looked_up)
    if placed is not None:
        image = decoded_way(event, records)
        assert image is not None
        assert placed[0] == write_partition(image.key, PARTITIONS)
        if isinstance(placed, LackingRecord):
            assert (placed.namespace, placed.key) == (image.namespace, record_key(image.key))
            assert placed.version == image.version
            for record in (None, RawBSONDocument(document((b"_id", value_of(1))))):
                payload = placed.payload(None if record is None else bytes(record.raw))
                assert payload == encode_image(replace(image, after=record))
        else:
            assert placed == (placed[0], encode_image(image))


@settings(max_examples=500, deadline=None)
@given(events())
def test_time_and_token_are_the_same_without_decoding(event: bytes) -> None:
    found = time_and_token_of(event)
    if found is not None:
        assert found == time_and_token(RawBSONDocument(event, RAW_OPTIONS))
    assert found is not None or payload_of(event, PARTITIONS) is None


@given(values, documents)
def test_the_key_of_a_record_is_found_without_decoding_it_or_is_left_to_the_decoder(key: Value, rest: bytes) -> None:
    record = document((b"_id", key), (b"rest", (DOCUMENT, rest)))
    key_found = key_of(record)
    if key_found is not None:
        assert key_found == document((b"", key))
    if key in USUAL_KEYS:
        assert key_found is not None
    assert key_of(document((b"other", key), (b"_id", key))) is None


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_event_that_was_cut_or_changed_is_more_than_left_to_the_decoded_way(data: st.DataObject) -> None:
    """A damaged event always gives None or a readable payload."""
    event = bytearray(data.draw(events()))
    for _ in range(data.draw(st.integers(1, 4))):
        event[data.draw(st.integers(0, len(event) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(event[: data.draw(st.integers(0, len(event)))])
    for broken in (bytes(event), cut):
        placed = payload_of(broken, PARTITIONS)
        assert placed is None or 0 <= placed[0] < PARTITIONS


def insert(key: Value, record: bytes) -> bytes:
    return document(
        (b"_id", (DOCUMENT, document((b"_data", text(b"82"))))),
        (b"operationType", text(b"insert")),
        (b"clusterTime", value_of(Timestamp(2**30, 1))),
        (b"wallTime", value_of(datetime.datetime(2026, 1, 1))),
        (b"fullDocument", (DOCUMENT, record)),
        (b"ns", (DOCUMENT, document((b"db", text(b"d")), (b"coll", text(b"c"))))),
        (b"documentKey", (DOCUMENT, document((b"_id", key)))),
    )


@pytest.mark.parametrize("key", USUAL_KEYS, ids=lambda key: f"{key[0].hex()}-{len(key[1])}")
@pytest.mark.parametrize("size", [0, 1_000, 16 * 1024 * 1024 - 100])
def test_usual_inserts_of_any_record_go_the_raw_way(key: Value, size: int) -> None:
    record = document((b"_id", key), (b"x", (DOCUMENT, nested(150))), (b"x", text(b"\xff" * size)))
    placed = payload_of(insert(key, record), PARTITIONS)
    assert placed is not None
    assert not isinstance(placed, LackingRecord)
    assert record in placed[1]
    image = decode_image(placed[1])
    assert image.key == bson.decode(document((b"", key)))[""]
    assert write_partition(image.key, PARTITIONS) == placed[0]


def test_a_record_that_looks_like_the_rest_of_an_event_is_only_a_record() -> None:
    """Lengths decide where it ends, never what is in it."""
    other = (DOCUMENT, document((b"db", text(b"other")), (b"coll", text(b"other"))))
    forged = document(
        (b"_id", value_of(1)), (b"ns", other), (b"documentKey", (DOCUMENT, document((b"_id", value_of(2)))))
    )
    placed = payload_of(insert(value_of(1), forged), 1)
    assert placed is not None
    assert not isinstance(placed, LackingRecord)
    image = decode_image(placed[1])
    assert (image.namespace, image.key) == ("d.c", 1)
    assert bson.encode(dict(image.after or {})) == forged
