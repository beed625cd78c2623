"""Writes that a node keeps for registrations that arrive after them: the writes taken in order, and early ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bson.errors import BSONError

from quaestor.errors import EventLayerError
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.partitioning import record_key
from quaestor.invalidation.matching.node_limits import NodeLimits
from quaestor.invalidation.matching.record_hashes import RecordHashes
from quaestor.invalidation.matching.retention import Record, Retained, Retention, Unread
from quaestor.invalidation.matching.tally import Tally
from quaestor.model import AfterImage, Version, WriteKind
from quaestor.ttl.write_rates import WriteRates

_EARLY_MS: Final = 10_000
_MOST_EARLY: Final = 20_000
_MOST_EARLY_BYTES: Final = 64 * 1024**2


class RetainedWrites:
    """Writes kept for replay.

    in_order: writes that came in cluster-time order.
    early: writes that came ahead of their turn; each comes again in order. Any of them may be missing.
    rates: write rates of the records. A write that is dropped unread is not counted.
    """

    __slots__ = ("_hashes", "_tally", "early", "in_order", "rates")

    def __init__(self, hashes: RecordHashes, limits: NodeLimits, tally: Tally, *, retention_ms: int) -> None:
        self._hashes = hashes
        self._tally = tally
        self.rates = WriteRates()
        self.in_order = Retention(
            retention_ms=retention_ms,
            max_images=limits.max_images,
            max_bytes=limits.max_image_bytes,
            reader=self,
        )
        self.early = Retention(retention_ms=_EARLY_MS, max_images=_MOST_EARLY, max_bytes=_MOST_EARLY_BYTES)

    def admit(self, image: AfterImage, *, now_ms: int, encoded: int) -> Retained | None:
        """Keep a write to one record, and count it; see Retention.admit."""
        record, identity = self._named(image)
        entry = self.in_order.admit(image, record, identity, now_ms=now_ms, encoded=encoded)
        if entry is not None:
            self.rates.observe(identity, now_ms=now_ms)
        return entry

    def admit_early(self, image: AfterImage, *, now_ms: int) -> Retained | None:
        """Keep a write to one record that came ahead of its turn; see Retention.admit."""
        return self.early.admit(image, *self._named(image), now_ms=now_ms)

    def read(self, unread: Unread) -> tuple[AfterImage, Record, int]:
        """Read a write that was kept unread. An unreadable write changes its whole collection."""
        try:
            image = decode_image(unread.payload)
            return image, *self._named(image)
        except (EventLayerError, BSONError) as error:
            self._tally.unreadable.append(str(error))
            image = AfterImage(namespace=unread.namespace, kind=WriteKind.COLLECTION, version=unread.version)
            return image, Record(unread.namespace, b""), 0

    def _named(self, image: AfterImage) -> tuple[Record, int]:
        """Return the written record and its hash."""
        key = record_key(image.key)
        return Record(image.namespace, key), self._hashes.of(image.namespace, key)

    def was_read(self, entry: Retained) -> None:
        """Count a write as of its arrival."""
        self.rates.observe(entry.identity, now_ms=entry.arrived_ms)

    def newer_than(self, since: Version, namespaces: Sequence[str], *, watermark: Version) -> list[Retained]:
        """Return the writes to these namespaces after `since`, first those in order.

        Contributors follow the writes in order: an early write older than the watermark would set them back.
        """
        retained = self.in_order.newer_than(since, namespaces)
        if self.early:
            retained += self.early.newer_than(max(since, watermark - 1), namespaces)
        return retained

    def interrupted(self, version: Version) -> None:
        """Forget all writes: those before `version` are unknown."""
        self.in_order.interrupted(version)
        self.early.interrupted(version)

    def trim(self, *, now_ms: int) -> None:
        """Drop writes older than the retention."""
        self.in_order.trim(now_ms=now_ms)
        self.early.trim(now_ms=now_ms)
