"""Fair queue of the entries that a cell has read from its query pipeline and not processed yet.

Tenants take turns. A flood of one tenant therefore delays the few entries of another only by the time to read it. A tenant
pays for a long turn by skipping later ones, so a few costly entries delay others no more. Within a tenant the order is kept.

The queue reaches a bounded number of entries and bytes ahead. Entries beyond wait until the flood has moved on.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from quaestor.event_layer import offsets
from quaestor.invalidation.grid.event_authorization import lease_ms
from quaestor.invalidation.grid.lease_horizon import LeaseHorizon
from quaestor.ports import StreamEntry

_OF_NOBODY: Final = ""
_TURN_S: Final = 0.01
"""Duration of a turn; for each further such duration the tenant skips one turn."""
_MOST_OWING: Final = 10_000
_LEASED: Final = ("r", "s")
"""Types of registrations and subscriptions, which the successor of a cell or a stage needs (see the codecs)."""


class FairQueue:
    """Entries by tenant. O(1) for each entry. Not thread-safe.

    read_to: offset of the last entry that has arrived.
    worked_off: all entries up to this offset have been taken.
    """

    def __init__(self, *, most_entries: int = 50_000, most_bytes: int = 64 * 1024 * 1024) -> None:
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._lanes: OrderedDict[str, deque[StreamEntry]] = OrderedDict()
        self._outstanding: deque[tuple[str, str]] = deque()
        self._taken: set[str] = set()
        self._owed_s: dict[str, float] = {}
        self.restart(offsets.START)

    def __len__(self) -> int:
        return self._entries

    @property
    def full(self) -> bool:
        """Whether reading must pause until an entry is taken."""
        return self._entries >= self._most_entries or self._bytes >= self._most_bytes

    @property
    def worked_off(self) -> str:
        """Offset up to which all entries have been taken: a position to save once they have been processed."""
        return self._outstanding[0][0] if self._outstanding else self.read_to

    def restart(self, offset: str) -> None:
        """Forget all entries; those behind `offset` will arrive."""
        self.read_to = offset
        self._lanes.clear()
        self._outstanding.clear()
        self._taken.clear()
        self._bytes = self._entries = 0

    def arrived(self, entries: Sequence[StreamEntry], leases: LeaseHorizon) -> None:
        """Queue these entries, in the order of the pipeline.

        Their leases are noted in that order too, not in that of the turns.
        """
        for entry in entries:
            tenant, expires_at_ms = _glance(entry.payload)
            self._lanes.setdefault(tenant, deque()).append(entry)
            at_ms = offsets.appended_at_ms(entry.offset)
            leases.add(at_ms, lease_ms(expires_at_ms, since_ms=at_ms))
            self._outstanding.append((self.read_to, entry.offset))
            self.read_to = entry.offset
            self._bytes += len(entry.payload)
            self._entries += 1

    def turns(
        self, most: int, *, within_s: float, clock: Callable[[], float] = time.monotonic
    ) -> Iterator[StreamEntry]:
        """Take some entries, one of each tenant in turn, while there is time. Process each before the next is requested.

        most: largest number of entries.
        within_s: available time.
        """
        end_s = clock() + within_s
        for _ in range(most):
            name = self._next()
            if name is None:
                return
            begun_s = clock()
            yield from self.take(1)
            now_s = clock()
            if now_s - begun_s > _TURN_S and len(self._owed_s) < _MOST_OWING:
                self._owed_s[name] = now_s - begun_s
            if now_s >= end_s:
                return

    def _next(self) -> str | None:
        """Return the tenant whose turn it is, now first in order; None if no entry waits."""
        while self._lanes:
            name = next(iter(self._lanes))
            owed_s = self._owed_s.pop(name, 0.0)
            if owed_s <= _TURN_S or len(self._lanes) == 1:
                return name
            self._owed_s[name] = owed_s - _TURN_S
            self._lanes.move_to_end(name)
        return None

    def take(self, most: int) -> list[StreamEntry]:
        """Take at most this many entries, one of each tenant in turn, the first tenants first."""
        taken: list[StreamEntry] = []
        while self._lanes and len(taken) < most:
            name, lane = self._lanes.popitem(last=False)
            taken.append(lane.popleft())
            if lane:
                self._lanes[name] = lane
        for entry in taken:
            self._taken.add(entry.offset)
            self._bytes -= len(entry.payload)
        self._entries -= len(taken)
        while self._outstanding and self._outstanding[0][1] in self._taken:
            self._taken.remove(self._outstanding.popleft()[1])
        return taken


def _glance(payload: bytes) -> tuple[str, int]:
    """Return the tenant of an entry, and the end of its lease; entries without a tenant share a turn of their own."""
    try:
        fields = RawBSONDocument(payload)
        tenant, leased = fields.get("tenant", _OF_NOBODY), fields["t"] in _LEASED
        return str(tenant), int(fields["exp"]) if leased else 0
    except (BSONError, KeyError, TypeError, ValueError, OverflowError):
        return _OF_NOBODY, 0
