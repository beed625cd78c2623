"""Sides of a maintained query: the collections that it reads, each with the filter that its records pass.

A cell watches the sides for the query. Stage and cells derive the same sides from the same query, so a side is named by its
place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quaestor.event_layer.partitioning import record_hash, record_key
from quaestor.incremental.maintenance import Maintenance
from quaestor.model import Document
from quaestor.planning.access_entries import Access
from quaestor.planning.access_paths import access_paths
from quaestor.query import CompiledQuery, compile_query
from quaestor.query.text.operator import with_text_index

_HASH_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SidePlan:
    """Side of a query: one collection that it reads.

    condition: filter of the side, as a document.
    predicate: the same filter, compiled.
    access: alternative access paths for the index, best first.
    """

    namespace: str
    condition: Document
    predicate: CompiledQuery
    access: tuple[Access, ...]


def sides_of(maintenance: Maintenance) -> tuple[SidePlan, ...]:
    """Return the sides of a query: its own namespace first, then the others in the order of `Maintenance.watched`.

    Raises QueryError.
    """
    plans: list[SidePlan] = []
    own = maintenance.query.namespace
    filters = [(own, maintenance.condition, maintenance.query.text_index)]
    filters += [(query.namespace, query.filter, query.text_index) for query in maintenance.watched()]
    for namespace, condition, text_index in filters:
        whole = dict(with_text_index(condition, text_index))
        predicate = compile_query(whole)
        access = tuple(access_paths(predicate.root))
        plans.append(SidePlan(namespace=namespace, condition=whole, predicate=predicate, access=access))
    return tuple(plans)


def namespace_seed(namespace: str) -> int:
    """Return a seed of record hashes, so that records of different namespaces with the same `_id` have different hashes."""
    return record_hash(namespace.encode())


def pack_members(namespace: str, keys: Iterable[Any], write_partitions: int) -> tuple[bytes, ...]:
    """Return the records with these `_id`s as packed hashes, one string for each write partition."""
    seed = namespace_seed(namespace)
    parts = [bytearray() for _ in range(write_partitions)]
    for key in map(record_key, keys):
        part = 0 if write_partitions == 1 else record_hash(key) % write_partitions
        parts[part] += struct.pack("<Q", record_hash(key, seed))
    return tuple(map(bytes, parts))


def unpack_members(packed: bytes) -> Sequence[int]:
    """Return the hashes that `pack_members` packed for one partition. Raises struct.error for any other bytes."""
    return struct.unpack(f"<{len(packed) // _HASH_BYTES}Q", packed)
