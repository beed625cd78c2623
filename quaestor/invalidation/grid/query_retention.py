"""Retention of a query pipeline within its bounds: registrations in its oldest part are given up, then that part is trimmed.

A query pipeline holds all registrations, and the successor of a cell needs them. Most of its entries are dead (cancelled or
fired), because a dead entry leaves only when everything older has left. When the pipeline is too large, a cell therefore
goes through it from the front. Dead entries cost nothing. Living ones are reported as evicted, like those of a full node.
Their entries become uncached, never stale, and the next miss registers them again at the other end
(docs/adr/0010-bounded-pipelines.md).

**No loss.** A cell trims only entries that it has worked off. A registration there that the cell does not hold was refused,
cancelled, fired or given up. This cell or its predecessor has reported that to its app. Registrations that the cell holds
are reported, and the report is appended before anything is trimmed. A later reader of the pipeline therefore misses only
registrations that no response relies on, at any position of the partition's other cells. A reader may miss three other kinds
of entries. A cancelled registration then lives until its lease is over. A stage's announcements are repeated when a cell
reports, after missed entries, that it has begun anew. A fence is kept as a value beside the pipeline.

**When the cell's own position blocks** (more is registered than it can take in), it is `behind`. Waiting events are then
refused unread, until the pipeline is small enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from quaestor.event_layer import offsets
from quaestor.event_layer.bounds import FURTHER, YOUNGEST_TRIMMED_MS, PipelineBounds
from quaestor.event_layer.codec import type_of
from quaestor.event_layer.tenancy import tenant_of
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.lease_horizon import LeaseHorizon
from quaestor.invalidation.grid.resizing.succession import Succession
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.ports import EventLayer, MeasuredPipelines, PipelineSize, StreamEntry

_READ_AT_ONCE: Final = 500
_MOST_AT_ONCE: Final = 1_000
"""Entries processed in one call: writes wait for it."""


class QueryRetention:
    """One cell's part in bounding the query pipeline that it reads. Not thread-safe.

    behind: the pipeline is too large, and no entry can go before the cell has worked off the entries that it read.
    unfinished: the pipeline is too large, and the next call can trim more.
    given_up: number of registrations given up since the cell started.
    bounds: bounds of the pipeline.
    """

    def __init__(
        self,
        layer: EventLayer,
        stream: str,
        node: MatchingNode,
        *,
        deployment: str,
        succession: Succession,
        leases: LeaseHorizon,
        outbox: CellOutbox,
        bounds: PipelineBounds,
    ) -> None:
        """Begin with nothing to give up.

        stream: the query pipeline.
        """
        self.behind = False
        self.unfinished = False
        self.given_up = 0
        self.bounds = bounds
        self._layer = layer
        self._stream = stream
        self._node = node
        self._succession = succession
        self._leases = leases
        self._deployment = deployment
        self._outbox = outbox
        self._after = offsets.START

    def bound(self, *, worked_off: str, now_ms: int, size: PipelineSize | None = None) -> None:
        """Give up and trim a part of the pipeline, if it is too large. Does nothing if the layer cannot measure.

        worked_off: all entries up to this offset have been processed.
        size: size of the pipeline, if it was measured just now.

        O(_MOST_AT_ONCE). Raises EventLayerError; then call it again.
        """
        if not isinstance(self._layer, MeasuredPipelines):
            return
        size = size or self._layer.measure(self._stream)
        enough = FURTHER if self.unfinished else 1.0
        self.unfinished, in_the_way, most = False, False, _MOST_AT_ONCE
        while self.bounds.excess(size) > enough and self._succession.joined:
            if not most:
                self.unfinished = True
                break
            enough, most = FURTHER, most - _READ_AT_ONCE
            some, in_the_way = self._oldest(size, worked_off)
            if not some:
                break
            self._give_up(some, now_ms)
            size = self._layer.measure(self._stream)
        if not self.unfinished:
            self._after = offsets.START
        self.behind = in_the_way and self.bounds.excess(size) > 1

    def restart(self) -> None:
        """Forget the progress: the event layer has lost its data."""
        self.behind = self.unfinished = False
        self._after = offsets.START

    def _oldest(self, size: PipelineSize, worked_off: str) -> tuple[list[StreamEntry], bool]:
        """Return the next few entries to trim, and whether this cell's own position prevents more."""
        surplus = size.entries - FURTHER * self.bounds.entries
        surplus_bytes = size.bytes - FURTHER * self.bounds.bytes
        some: list[StreamEntry] = []
        for entry in self._layer.read({self._stream: self._after}, count=_READ_AT_ONCE, block_ms=0):
            if offsets.appended_at_ms(entry.offset) >= size.at_ms - YOUNGEST_TRIMMED_MS:
                return some, False
            if entry.offset > worked_off:
                return some, True
            some.append(entry)
            surplus, surplus_bytes = surplus - 1, surplus_bytes - len(entry.payload)
            if surplus <= 0 and surplus_bytes <= 0:
                break
        return some, False

    def _give_up(self, entries: Sequence[StreamEntry], now_ms: int) -> None:
        registrations = [
            registration_id for entry in entries for registration_id in _registered(entry.payload, self._deployment)
        ]
        given_up = self._node.give_up(registrations, now_ms=now_ms)
        self._outbox.add(given_up)
        self._outbox.send()
        self._succession.keep_fence()
        # Entries appended at the same moment as the last of these may not have been processed yet.
        self._after = entries[-1].offset
        before_ms = offsets.appended_at_ms(self._after)
        self._layer.trim(self._stream, before_ms=before_ms)
        self._leases.trimmed(before_ms)
        self.given_up += sum(len(invalidated.registration_ids) for invalidated in given_up)


def _registered(payload: bytes, deployment: str) -> Iterator[str]:
    """Yield the id of the registration in an entry, taken over or not.

    No cell has registered an unreadable or unauthorized entry, so no response relies on it.
    """
    try:
        match type_of(payload):
            case b"r":
                fields = RawBSONDocument(payload)
            case b"t":
                fields = RawBSONDocument(bson.decode(payload)["r"])
            case _:
                return
        if tenant_of(fields["id"], deployment) == fields["tenant"]:
            yield fields["id"]
    except (AttributeError, BSONError, KeyError, TypeError, ValueError):
        return
