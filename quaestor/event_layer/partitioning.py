"""The cell of the grid that a record and a query belong to. Everybody who routes uses these functions, and only these.

Write partition: hash of the record's `_id`, the one attribute that inserts, updates and deletes all carry. Query
partition: hash of the normalised query, so that equal queries meet in one column whoever registers them. (InvaliDB,
PVLDB 2020, section 5.1.) Events without a record (collection events, gaps, ticks) go to every write partition.

The hashes are xxh3 and xxh128: stable across processes, machines and versions, unlike Python's own.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import bson
from bson import ObjectId
from xxhash import xxh3_64_intdigest

from quaestor.query.encoding import OPTIONS

_STRING: Final = Struct("<iBBi")
_INT32: Final = Struct("<iBBiB")
_SHORT: Final = 1024


def record_key(key: Any) -> bytes:
    """A record's `_id` as bytes: equal for the same `_id` in whatever process it was decoded.

    `uuid.UUID` counts as standard binary (subtype 4). Raises bson.errors.InvalidDocument if it is not a BSON value.

    The bytes are those of `{"": key}` in BSON. They are asked for with every member of every cached result, so the usual
    kinds of `_id` are written here, at a quarter of what the encoder takes.
    """
    kind = key.__class__
    if kind is ObjectId:
        identifier: bytes = key.binary
        return b"\x13\x00\x00\x00\x07\x00%b\x00" % identifier
    if kind is str and len(key) < _SHORT:
        text: bytes = key.encode("utf-8", "surrogatepass")
        return _STRING.pack(len(text) + 12, 2, 0, len(text) + 1) + text + b"\x00\x00"
    if kind is int and -(2**31) <= key < 2**31:
        return _INT32.pack(11, 16, 0, key, 0)
    return bson.encode({"": key}, codec_options=OPTIONS)


def record_hash(key: bytes, seed: int = 0) -> int:
    """64 bits for the record with this `record_key`, different for each seed."""
    return xxh3_64_intdigest(key, seed)


def write_partition(key: Any, partitions: int) -> int:
    """The write partition, 0..partitions-1, of the record whose `_id` is `key`."""
    return 0 if partitions == 1 else partition_of(record_key(key), partitions)


def partition_of(key: bytes, partitions: int) -> int:
    """The write partition of the record with this `record_key`."""
    return record_hash(key) % partitions


def query_hash(query_id: str) -> int:
    """64 bits of the query with this id (xxh128, as 32 hexadecimal digits), that tell its partition however many there are."""
    return xxh3_64_intdigest(query_id.encode())


def partition_of_hash(hashed: int, partitions: int) -> int:
    """The query partition, 0..partitions-1, of the query with this `query_hash`."""
    return hashed % partitions


def query_partition(query_id: str, partitions: int) -> int:
    """The query partition, 0..partitions-1, of the query with this id."""
    return 0 if partitions == 1 else partition_of_hash(query_hash(query_id), partitions)
