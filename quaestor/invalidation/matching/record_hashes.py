"""Hashes of the records of a node's write partition: membership costs one integer a record."""

from __future__ import annotations

from quaestor.event_layer.partitioning import record_hash, record_key
from quaestor.incremental.sides import namespace_seed
from quaestor.model import Cell, GridShape, Registration


class RecordHashes:
    """Record hashes of one cell; a record has the same hash in every cell. Not thread-safe."""

    __slots__ = ("_seeds", "_write_partition", "_write_partitions")

    def __init__(self, cell: Cell, shape: GridShape) -> None:
        self._write_partition = cell.write_partition
        self._write_partitions = shape.write_partitions
        self._seeds: dict[str, int] = {}

    def of(self, namespace: str, key: bytes) -> int:
        """Return the hash of one record.

        key: the record's `_id`, as `record_key` encodes it.
        """
        seed = self._seeds.get(namespace)  # saves a call for every write
        return record_hash(key, self._seed(namespace) if seed is None else seed)

    def members(self, registration: Registration) -> tuple[int, ...] | None:
        """Return the members of a result in this write partition; None if the members are unknown."""
        if registration.members is None:
            return None
        seed = self._seed(registration.query.namespace)
        keys = map(record_key, registration.members)
        partitions, mine = self._write_partitions, self._write_partition
        if partitions == 1:
            return tuple(record_hash(key, seed) for key in keys)
        return tuple(record_hash(key, seed) for key in keys if record_hash(key) % partitions == mine)

    def contributing(self, registration: Registration) -> list[int | None]:
        """Return the contributors of a result, in order; None for those in other write partitions."""
        if registration.contributors is None:
            return []
        seed, partitions, mine = self._seed(registration.query.namespace), self._write_partitions, self._write_partition
        keys = (record_key(record["_id"]) for record in registration.contributors.records)
        return [
            record_hash(key, seed) if partitions == 1 or record_hash(key) % partitions == mine else None for key in keys
        ]

    def _seed(self, namespace: str) -> int:
        seed = self._seeds.get(namespace)
        if seed is None:
            seed = self._seeds[namespace] = namespace_seed(namespace)
        return seed
