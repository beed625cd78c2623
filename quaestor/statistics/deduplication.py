"""Deduplication of writes: detection of write pipeline entries that repeat earlier ones.

Ingest appends at least once. After a restart, or while two of them overlap, the last writes come again. A change stream
delivers in the order of versions, so a new entry is never older than earlier ones. Only the newest version and its records
must be remembered.

While the grid gets new partitions, each write is in a pipeline of the old grid and in one of the new. The position in a
record's other pipeline is known, so the record is taken from only one of them: within one batch from the older.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quaestor.event_layer.partitioning import record_hash, record_key
from quaestor.model import AfterImage, WriteKind
from quaestor.statistics.positions import Position

MOST_KEYS: Final = 1_000
"""Largest number of records of one version (one transaction) that are distinguished."""
_ANOTHER_ORDER: Final = 10 << 32
"""Age of a gap from which it means another database.

Ingest saves its position often, so its repetitions are only seconds old.
"""


def name_of(image: AfterImage) -> str:
    """Return a name of a record and its write: 64 bits, in the form of a checkpoint."""
    record = record_key(image.key) + image.namespace.encode("utf-8", "surrogatepass")
    return f"{image.kind.value[0]}{record_hash(record):016x}"


class SeenWrites:
    """Writes read from one write pipeline, as far as they may be repeated."""

    __slots__ = ("_keys", "since", "version")

    def __init__(self, position: Position) -> None:
        self.since, self.version = position.since, position.version
        self._keys = set(position.keys)

    def repeated(self, image: AfterImage) -> bool:
        """Whether this very write was seen before; otherwise remember it. O(1).

        Ticks and gaps are never repeated. A gap that lies far back shows another database, whose order begins anew. Repeated
        writes may follow other gaps, as after any restart.
        """
        if image.kind is WriteKind.TICK:
            return False
        if image.kind is WriteKind.GAP:
            if 0 < image.version < self.version - _ANOTHER_ORDER:
                self.since = self.version = 0
                self._keys.clear()
            return False
        if image.version < self.version:
            return True
        if image.version > self.version:
            self.since = self.since or image.version
            self.version = image.version
            self._keys.clear()
        name = name_of(image)
        if name in self._keys:
            return True
        if len(self._keys) < MOST_KEYS:
            self._keys.add(name)
        return False

    def at(self, offset: str, count: int | None) -> Position:
        """Return the position in the pipeline, with the seen writes."""
        keys = tuple(sorted(self._keys))
        return Position(offset=offset, count=count, since=self.since, version=self.version, keys=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredWrites:
    """Writes for which the pipelines of another grid were read: a position for each of its partitions."""

    partitions: Sequence[Position]

    def covers(self, image: AfterImage) -> bool:
        """Whether the write is among them."""
        place = record_hash(record_key(image.key)) % len(self.partitions) if image.key is not None else 0
        position = self.partitions[place]
        if not 0 < position.since <= image.version:
            return False
        return image.version < position.version or (
            image.version == position.version and name_of(image) in position.keys
        )
