"""Fast path for the usual change events (one record written, in the form of mongod 6.0 and later): payloads made byte by byte.

At ten thousand writes a second, decoding events and encoding images takes as much of a core as the rest of ingest. This path
decodes
nothing: times, key and records go into the payload as the bytes that mongod sent. Any unusual event is left to
    `change_events.py`,
which reads every event. The two agree on all events that both read. An update of a collection without post-images carries no
record; its payload is made after the look-up of the record.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, NamedTuple

import bson
from bson.errors import BSONError

from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.event_layer.image_bytes import changed_field, image_bytes
from quaestor.event_layer.partitioning import partition_of
from quaestor.invalidation.ingest.change_events import CHANGED, RECORD_KINDS, touched_paths
from quaestor.model import Version, WriteKind

_TOKEN: Final = slice(4, 9)
_TOKEN_LENGTH: Final = 9
_HEAD: Final = re.compile(
    rb"\x02operationType\0.{4}(insert|update|replace|delete)\0"
    rb"\x11clusterTime\0(.{7}[\0-\x7f])"
    rb"(?:\x05collectionUUID\0\x10\0\0\0\x04.{16})?"
    rb"\x09wallTime\0(.{8})"
    rb"(?:\x03fullDocument\0(.{4})|\x0afullDocument\0)?",
    re.DOTALL,
)
_NAMES: Final = re.compile(
    rb"\x03ns\0.{4}\x02db\0.{4}([^\0]+)\0\x02coll\0.{4}([^\0]+)\0\0\x03documentKey\0(.{4})(.)_id\0", re.DOTALL
)
_BEFORE: Final = re.compile(rb"(?:\x0afullDocumentBeforeChange\0|\x03fullDocumentBeforeChange\0(.{4}))", re.DOTALL)
_PATHS: Final = re.compile(rb"\x04%b\0(.{4})" % CHANGED.encode(), re.DOTALL)
_SIZES: Final = {b"\x07": 12, b"\x10": 4, b"\x12": 8}
"""Types of keys of constant size, with their bytes: ObjectId, int32, int64."""
_STRING: Final = b"\x02"
_ID: Final = b"_id\0"
_MAY_LACK: Final = (WriteKind.DELETE, WriteKind.UPDATE)
_END: Final = b"\0"
_SHORT: Final = 512
"""Largest list of touched paths, in bytes, that is kept for the next update."""
_int32: Final[Callable[[bytes, int], tuple[int]]] = struct.Struct("<i").unpack_from
"""Reads four bytes at a position. Raises struct.error if there are fewer."""


class LackingRecord(NamedTuple):
    """Write of one record whose event came without the record.

    partition: the record's write partition.
    namespace, key: identity of the record; the key as `record_key` returns it.
    version: version of the write.
    payload: makes the payload from the present record, BSON; None: the record is gone.
    """

    partition: int
    namespace: str
    key: bytes
    version: Version
    payload: Callable[[bytes | None], bytes]


def payload_of(event: bytes, partitions: int, *, looked_up: bool = False) -> tuple[int, bytes] | LackingRecord | None:
    """Return the write partition and the payload of one record's write, as far as its event carries them; None: an unusual event.

    O(size of the records), a few microseconds for small ones.

    looked_up: the server has looked up the record in an update; otherwise that is the image of this very write.
    """
    try:
        head = _head(event)
        if head is None:
            return None
        operation, version, wall, length = head.groups()
        kind, after, end = RECORD_KINDS[operation.decode()], None, head.end()
        if length is not None:
            begin = end - 4
            end = begin + _int32(event, begin)[0]
            after = event[begin:end]
        names = _NAMES.match(event, end)
        if (
            names is None
            or (after is None and kind not in _MAY_LACK)
            or (after is not None and kind is WriteKind.DELETE)
        ):
            return None
        database, collection, _, key_type = names.groups()
        end = names.start(3)
        end += _int32(event, end)[0]
        key = event[names.end() : end - 1]
        before: bytes | None = None
        changed = b""
        if match := _BEFORE.match(event, end):
            end = match.end()
            if match[1] is not None:
                begin = end - 4
                end = begin + _int32(event, begin)[0]
                before = event[begin:end]
        if kind is WriteKind.UPDATE and (match := _PATHS.match(event, end)):
            begin = match.start(1)
            end = begin + _int32(event, begin)[0]
            changed = (_known_changed if end - begin <= _SHORT else _changed)(event[begin:end])
        if event[end:] != _END or not _usual(key_type, key):
            return None
        namespace = _namespace(database, collection)
        image = partial(
            image_bytes,
            kind=kind,
            namespace=namespace,
            version=version,
            wall=wall,
            key_type=key_type,
            key=key,
            exact=after is not None and not (looked_up and kind is WriteKind.UPDATE),
            known=before is not None or kind is WriteKind.INSERT,
            before=before,
            changed=changed,
        )
        record = _as_record_key(key_type, key)
        partition = partition_of(record, partitions) if partitions > 1 else 0
        if after is None and kind is WriteKind.UPDATE and not looked_up:
            return LackingRecord(partition, namespace, record, int.from_bytes(version, "little"), partial(_with, image))
        return partition, image(after=after)
    except (ValueError, BSONError, struct.error):  # a name that is not UTF-8, or a value that is cut off
        return None


def time_and_token_of(event: bytes) -> tuple[Version, bytes] | None:
    """Return the cluster time and the resume token (BSON) of one record's write; None: an unusual event."""
    try:
        head = _head(event)
    except struct.error:  # the event is cut off
        return None
    return None if head is None else (int.from_bytes(head[2], "little"), event[_TOKEN_LENGTH : head.start()])


def _head(event: bytes) -> re.Match[bytes] | None:
    """Return the fields behind the resume token, as far as the record. Raises struct.error if the event is cut off."""
    if event[_TOKEN] != b"\x03_id\0":
        return None
    return _HEAD.match(event, _TOKEN_LENGTH + _int32(event, _TOKEN_LENGTH)[0])


def key_of(record: bytes) -> bytes | None:
    """Return the `record_key` of a record; None if its `_id` is not the first field or has an unusual type."""
    key_type = record[4:5]
    if record[5:9] != _ID:
        return None
    size = 4 + _int32(record, 9)[0] if key_type == _STRING else _SIZES.get(key_type)
    return None if size is None else _as_record_key(key_type, record[9 : 9 + size])


def _with(image: Callable[..., bytes], after: bytes | None) -> bytes:
    return image(after=after)


def _usual(key_type: bytes, key: bytes) -> bool:
    """Whether `key` is one whole value whose bytes survive decoding and encoding. Raises UnicodeDecodeError."""
    if key_type == _STRING:
        key[4:-1].decode()
        return _int32(key, 0)[0] == len(key) - 4 and key[-1:] == _END
    return _SIZES.get(key_type) == len(key)


def _as_record_key(key_type: bytes, key: bytes) -> bytes:
    """Return the result of `record_key` for this key."""
    return (len(key) + 7).to_bytes(4, "little") + key_type + _END + key + _END


@lru_cache(maxsize=1_024)
def _namespace(database: bytes, collection: bytes) -> str:
    return f"{database.decode()}.{collection.decode()}"


def _changed(array: bytes) -> bytes:
    """Return the field of the touched paths, from those of the event. Raises BSONError."""
    paths = touched_paths(bson.decode(array, BSON_OPTIONS).values(), exact=True)
    return b"" if paths is None else changed_field(paths)


_known_changed = lru_cache(maxsize=1_024)(_changed)
"""The same for short lists: most updates touch the same few fields."""
