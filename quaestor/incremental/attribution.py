"""Attribution of events to writes, where a result was read anew and its difference became events."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Final

from quaestor.incremental.events import ResultEvent
from quaestor.incremental.maintenance import Maintenance
from quaestor.model import AfterImage, Version, WriteKind
from quaestor.query.bson_order import order_key

_MOST_RECORDS: Final = 10_000
"""Records whose writes are noted; events of further records have no operation."""
_MOST_WRITES: Final = 20_000
"""Writes that are noted, as of one record that changes all the time. With more, no event has an operation until all are read."""


class UnreadWrites:
    """Writes to the records of a result that no reading has shown yet. Not thread-safe.

    An event of a record has the operation of the writes to this record since the last reading:

    - `insert` or `delete`, if the record is new or gone
    - otherwise the operation of the last write
    """

    def __init__(self, maintenance: Maintenance) -> None:
        self._namespace = maintenance.query.namespace if maintenance.records else None
        self._writes: dict[Hashable, list[AfterImage]] = {}
        self._number = 0
        self._not_noted: Version | None = None

    def note(self, image: AfterImage) -> None:
        """Note a write. O(1)."""
        if image.namespace != self._namespace or image.key is None:
            return
        if self._number >= _MOST_WRITES:
            self.clear()
            self._not_noted = image.version
        if self._not_noted is not None:
            self._not_noted = max(self._not_noted, image.version)
            return
        key = order_key(image.key)
        if key in self._writes or len(self._writes) < _MOST_RECORDS:
            self._writes.setdefault(key, []).append(replace(image, after=None, before=None))
            self._number += 1

    def clear(self) -> None:
        """Forget all writes: no reading follows."""
        self._writes.clear()
        self._number, self._not_noted = 0, None

    def attributed(self, events: Iterable[ResultEvent], version: Version) -> list[ResultEvent]:
        """Return the events of a reading at this version, with their operations, and forget the writes that it contains."""
        if self._not_noted is not None:
            if version >= self._not_noted:
                self.clear()
            return list(events)
        attributed = [self._attributed(event, version) for event in events]
        kept = {key: [write for write in writes if write.version > version] for key, writes in self._writes.items()}
        self._writes = {key: writes for key, writes in kept.items() if writes}
        self._number = sum(map(len, self._writes.values()))
        return attributed

    def _attributed(self, event: ResultEvent, version: Version) -> ResultEvent:
        writes = [write for write in self._writes.get(order_key(event.key), ()) if write.version <= version]
        if not writes:
            return event
        last = max(writes, key=lambda write: write.version)
        inserted = any(write.kind is WriteKind.INSERT for write in writes)
        operation = WriteKind.INSERT if inserted and last.kind is not WriteKind.DELETE else last.kind
        return replace(event, operation=operation, version=last.version)
