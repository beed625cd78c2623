"""Fast path for the usual change events (one record written, as mongod 6.0 and later tell it): payloads made byte by byte.

At ten thousand writes a second decoding an event and encoding an image takes as much of a core as everything else that
ingest does. Here nothing is decoded: times, key and records go into the payload as the bytes that mongod sent. Whatever
looks different in any way is left to `change_events.py`, which understands every event; the two agree on all that both read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import bson
from bson.errors import BSONError

from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.event_layer.image_bytes import image_bytes
from quaestor.event_layer.partitioning import partition_of
from quaestor.invalidation.ingest.change_events import CHANGED, RECORD_KINDS, touched_paths
from quaestor.model import WriteKind

_TOKEN: Final = slice(4, 9)
_TOKEN_LENGTH: Final = slice(9, 13)
_AFTER_HEAD: Final = 9
_HEAD: Final = re.compile(
    rb"\x02operationType\0.{4}(insert|update|replace|delete)\0"
    rb"\x11clusterTime\0(.{7}[\0-\x7f])"
    rb"(?:\x05collectionUUID\0\x10\0\0\0\x04.{16})?"
    rb"\x09wallTime\0(.{8})"
    rb"(?:\x03fullDocument\0(.{4}))?",
    re.DOTALL,
)
_NAMES: Final = re.compile(
    rb"\x03ns\0.{4}\x02db\0.{4}([^\0]+)\0\x02coll\0.{4}([^\0]+)\0\0\x03documentKey\0(.{4})(.)_id\0", re.DOTALL
)
_BEFORE: Final = re.compile(rb"(?:\x0afullDocumentBeforeChange\0|\x03fullDocumentBeforeChange\0(.{4}))", re.DOTALL)
_PATHS: Final = re.compile(rb"\x04%b\0(.{4})" % CHANGED.encode(), re.DOTALL)
_SIZES: Final = {b"\x07": 12, b"\x10": 4, b"\x12": 8}
"""Keys of constant size: ObjectId, int32, int64."""
_STRING: Final = b"\x02"
_END: Final = b"\0"


def payload_of(event: bytes, partitions: int) -> tuple[int, bytes] | None:
    """Write partition and payload of one record's write; None: of anything that does not look as usual.

    An update must carry its record, and that must be the image of this very write: servers before 6.0 look it up.
    O(size of the records), a few microseconds for small ones.
    """
    if event[_TOKEN] != b"\x03_id\0":
        return None
    head = _HEAD.match(event, _AFTER_HEAD + _int32(event[_TOKEN_LENGTH]))
    if head is None:
        return None
    operation, version, wall, length = head.groups()
    kind, after, end = RECORD_KINDS[operation.decode()], None, head.end()
    if length is not None:
        begin, end = end - 4, end - 4 + _int32(length)
        after = event[begin:end]
    names = _NAMES.match(event, end)
    if names is None or (after is None) != (kind is WriteKind.DELETE):
        return None
    database, collection, length, key_type = names.groups()
    end = names.start(3) + _int32(length)
    key = event[names.end() : end - 1]
    before: bytes | None = None
    changed: tuple[str, ...] | None = None
    if found := _BEFORE.match(event, end):
        end = found.end()
        if found[1] is not None:
            begin, end = end - 4, end - 4 + _int32(found[1])
            before = event[begin:end]
    try:
        if kind is WriteKind.UPDATE and (found := _PATHS.match(event, end)):
            begin, end = found.start(1), found.start(1) + _int32(found[1])
            changed = touched_paths(bson.decode(event[begin:end], BSON_OPTIONS).values(), exact=True)
        if event[end:] != _END or not _usual(key_type, key):
            return None
        payload = image_bytes(
            kind=kind,
            namespace=_namespace(database, collection),
            version=version,
            wall=wall,
            key_type=key_type,
            key=key,
            exact=after is not None,
            known=before is not None or kind is WriteKind.INSERT,
            after=after,
            before=before,
            changed=changed,
        )
    except (ValueError, BSONError):  # a name that is no UTF-8
        return None
    return (partition_of(_as_record_key(key_type, key), partitions) if partitions > 1 else 0), payload


def _usual(key_type: bytes, key: bytes) -> bool:
    """Whether `key` is one whole value of a type whose bytes survive being decoded and encoded. Raises UnicodeDecodeError."""
    if key_type == _STRING:
        key[4:-1].decode()
        return _int32(key[:4]) == len(key) - 4 and key[-1:] == _END
    return _SIZES.get(key_type) == len(key)


def _as_record_key(key_type: bytes, key: bytes) -> bytes:
    """What `record_key` gives for this key."""
    return (len(key) + 7).to_bytes(4, "little") + key_type + _END + key + _END


@lru_cache(maxsize=1_024)
def _namespace(database: bytes, collection: bytes) -> str:
    return f"{database.decode()}.{collection.decode()}"


def _int32(data: bytes) -> Any:
    return int.from_bytes(data, "little")
