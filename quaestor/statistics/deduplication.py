"""Deduplication of writes: which entries of a write pipeline repeat what was told before.

Ingest appends at least once: when it is restarted, or while two of them overlap, the last writes come again. A change stream
delivers in the order of versions, so what comes for the first time is never older than what was there already: the newest
version, and which records it concerned, are all that has to be remembered.

While the grid is partitioned anew each write is in a pipeline of the old and in one of the new grid. Where a record's other
pipeline was read to is known, so it is taken from one of them: within one batch from the older.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quaestor.event_layer.partitioning import record_hash, record_key
from quaestor.model import AfterImage, WriteKind
from quaestor.statistics.positions import Position

MOST_KEYS: Final = 1_000
"""Records of one version (one transaction) that are told apart."""
_ANOTHER_ORDER: Final = 10 << 32
"""Ingest saves its position every moment: what it repeats is seconds old, not more."""


def name_of(image: AfterImage) -> str:
    """Name of a record and of what happened to it: 64 bits, as a checkpoint holds them."""
    record = record_key(image.key) + image.namespace.encode("utf-8", "surrogatepass")
    return f"{image.kind.value[0]}{record_hash(record):016x}"


class SeenWrites:
    """Writes that were read of one write pipeline, as far as they may be repeated."""

    __slots__ = ("_keys", "since", "version")

    def __init__(self, position: Position) -> None:
        self.since, self.version = position.since, position.version
        self._keys = set(position.keys)

    def repeated(self, image: AfterImage) -> bool:
        """Whether this very write was seen before; remembers it otherwise. O(1).

        Ticks and gaps are never repeated. A gap that lies far back says that the database is another one: its order begins
        anew. Other gaps may be followed by repeated writes like any restart.
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
        """Position in the pipeline, with what was seen."""
        keys = tuple(sorted(self._keys))
        return Position(offset=offset, count=count, since=self.since, version=self.version, keys=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredWrites:
    """Writes that the pipelines of another grid were read for: a position for each of its partitions."""

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
