"""Cell of the grid that a record and a query belong to. Every part that routes uses exactly these functions.

The write partition is a hash of the record's `_id`, the only attribute that inserts, updates and deletes all carry. The query
partition is a hash of the normalised query, so that equal queries meet in one column, whichever process registers them.
Events without a record (collection events, gaps, ticks) go to every write partition. Source: InvaliDB, PVLDB 2020, section 5.1.

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
    """Return a record's `_id` as bytes: equal for the same `_id`, in any process that decoded it.

    `uuid.UUID` counts as standard binary (subtype 4). Raises bson.errors.InvalidDocument if it is not a BSON value.

    The bytes are those of `{"": key}` in BSON. Every member of every cached result needs them, so the usual kinds of `_id`
    are written here, in a quarter of the encoder's time.
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
    """Return 64 bits for the record with this `record_key`, different for each seed."""
    return xxh3_64_intdigest(key, seed)


def write_partition(key: Any, partitions: int) -> int:
    """Return the write partition, 0..partitions-1, of the record whose `_id` is `key`."""
    return 0 if partitions == 1 else partition_of(record_key(key), partitions)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the write partition of the record with this `record_key`."""
    return record_hash(key) % partitions


def query_hash(query_id: str) -> int:
    """Return 64 bits of a query id (xxh128, as 32 hexadecimal digits) that give its partition for any number of them."""
    return xxh3_64_intdigest(query_id.encode())


def partition_of_hash(hashed: int, partitions: int) -> int:
    """Return the query partition, 0..partitions-1, of the query with this `query_hash`."""
    return hashed % partitions


def query_partition(query_id: str, partitions: int) -> int:
    """Return the query partition, 0..partitions-1, of the query with this id."""
    return 0 if partitions == 1 else partition_of_hash(query_hash(query_id), partitions)
