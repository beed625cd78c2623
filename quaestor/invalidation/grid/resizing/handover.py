"""Handover between generations of the grid: the version at which the new one begins to match, and the takeover.

The handover is ingest's part in a resize (see `quaestor/invalidation/ingest/handover.py`).

Every step may be repeated: ingest can die in between, and then continues at the same step. Two values are kept: `as_of`, before
anything is read, and `done`, when every registration before the fences lies in the new query pipelines.

**No loss.** A cell saves a checkpoint after it has sent its results. Everything up to the checkpoints of all old cells has
therefore been reported before any heartbeat of a new cell. Everything later is read again from the database's own log, and
the new cells match it. If that log or a checkpoint is gone, ingest begins with a gap, and all registrations taken over are
invalidated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import bson
from bson.raw_bson import RawBSONDocument

from quaestor.clock import Clock
from quaestor.errors import EventLayerError
from quaestor.event_layer import offsets, streams
from quaestor.event_layer.partitioning import query_partition
from quaestor.invalidation.grid.checkpoint import Checkpoint
from quaestor.invalidation.grid.resizing.messages import (
    Fence,
    concerns_resizing,
    decode,
    encode_fence,
    encode_taken_over,
)
from quaestor.invalidation.grid.resizing.state import get_state
from quaestor.invalidation.ingest.handover import NOT_KNOWN, Followed
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.model import Cell, GridShape, Version
from quaestor.observability.event_log import EventLog
from quaestor.ports import EventLayer
from quaestor.realtime.codec import concerns_subscriptions

_AT_ONCE: Final = 500
_TIDY_AFTER_MS: Final = 120_000


class GridHandover:
    """Handover to one generation, for its ingest. Not thread-safe.

    done: nothing is left to take over.
    as_of: the earlier generations have processed every write up to this version; 0: not known.
    """

    def __init__(
        self,
        layer: EventLayer,
        shape: GridShape,
        earlier: Sequence[GridShape],
        *,
        deployment: str,
        clock: Clock,
        telemetry: EventLog,
    ) -> None:
        """Make the handover; `begin` reads its progress.

        layer: event layer of ingest.
        shape: shape of the generation that takes over.
        earlier: generations that may still guard registrations.
        """
        self.done = not shape.generation
        self.as_of: Version = NOT_KNOWN
        self._layer = layer
        self._shape = shape
        self._earlier = tuple(earlier)
        self._deployment = deployment
        self._clock = clock
        self._telemetry = telemetry
        self._name = streams.handover(deployment, shape.generation)
        self._tidy_after_ms: int | None = None

    def begin(self) -> bool:
        """Decide `as_of`; return True if it is decided or unnecessary, False until all cells of this generation run."""
        if self.done:
            return True
        value = self._layer.get(self._name)
        if value is not None:
            fields = bson.decode(value)
            self.as_of, self.done = int(fields["as_of"]), bool(fields["done"])
            return True
        if not all(self._present(cell) for cell in self._shape.cells):
            return False
        self.as_of = self._decide()
        self._put()
        return True

    def followed(self) -> Followed:
        """Return the database that the earlier generations' ingest followed.

        Call it before the primary is probed, so that a change in between shows.
        """
        values = [
            self._layer.get(streams.resume_position(self._deployment, shape.generation)) for shape in self._earlier
        ]
        known = [ResumePosition.decode(value) for value in values if value is not None]
        databases = {start.database for start in known} - {None}
        elections = {start.election for start in known} - {None}
        return Followed(
            database=next(iter(databases), None),
            election=next(iter(elections), None),
            unbroken=len(databases) <= 1 and len(elections) <= 1 and all(start.gap <= self.as_of for start in known),
        )

    def complete(self) -> None:
        """Take the registrations over. O(entries of the earlier query pipelines).

        Raises EventLayerError; then call it again.
        """
        carried = 0
        for shape in self._earlier:
            for partition in range(shape.query_partitions):
                stream = streams.queries(self._deployment, partition, shape.generation)
                self._layer.append(stream, [encode_fence(Fence(generation=self._shape.generation))])
                carried += self._carry(stream)
        self.done = True
        self._put()
        self._tidy_after_ms = self._clock() + _TIDY_AFTER_MS
        self._telemetry.event("resize.taken_over", generation=self._shape.generation, entries=carried, as_of=self.as_of)

    def lost(self) -> None:
        """Prepare to repeat everything: the event layer has lost its data, and the fences with them.

        Older cells may have activated registrations since. Registrations taken over before are dead.
        """
        self.done, self.as_of, self._tidy_after_ms = not self._shape.generation, NOT_KNOWN, None

    def tidy(self) -> None:
        """Empty the earlier generations' pipelines once no part needs them: a while after this grid serves."""
        if self._tidy_after_ms is None or self._clock() < self._tidy_after_ms:
            return
        self._tidy_after_ms = self._clock() + _TIDY_AFTER_MS
        state = get_state(self._layer, self._deployment)
        if state is None or state.serving.shape != self._shape:
            return
        self._tidy_after_ms = None
        for shape in self._earlier:
            for name in _pipelines(self._deployment, shape):
                self._layer.trim(name, before_ms=self._clock())

    def _present(self, cell: Cell) -> bool:
        return self._layer.get(streams.presence(self._deployment, cell, self._shape.generation)) is not None

    def _decide(self) -> Version:
        """Return the oldest version with a checkpoint in every cell; unknown if one has none."""
        oldest: Version | None = None
        for shape in self._earlier:
            if shape.generation and not self._finished(shape):
                continue  # none of its cells ever reported that it was fresh
            for cell in shape.cells:
                value = self._layer.get(streams.checkpoint(self._deployment, cell, shape.generation))
                saved = None if value is None else Checkpoint.decode(value, shape)
                if saved is None:
                    self._telemetry.event("resize.nothing_known", cell=str(cell), generation=shape.generation)
                    return NOT_KNOWN
                oldest = saved.version if oldest is None else min(oldest, saved.version)
        return oldest or NOT_KNOWN

    def _finished(self, shape: GridShape) -> bool:
        value = self._layer.get(streams.handover(self._deployment, shape.generation))
        return value is not None and bool(bson.decode(value)["done"])

    def _carry(self, stream: str) -> int:
        """Copy one pipeline up to the first fence that concerns it.

        Order is kept, so cancellations follow their registrations.
        """
        after, carried, now_ms = offsets.START, 0, self._clock()
        while entries := self._layer.read({stream: after}, count=_AT_ONCE, block_ms=0):
            batches: dict[int, list[bytes]] = {}
            fenced = False
            for entry in entries:
                after = entry.offset
                if fenced := self._is_fence(entry.payload):
                    break
                copied = self._copied(entry.payload, now_ms)
                if copied is not None:
                    batches.setdefault(copied[0], []).append(copied[1])
                    carried += 1
            for partition, payloads in batches.items():
                self._layer.append(streams.queries(self._deployment, partition, self._shape.generation), payloads)
            if fenced:
                return carried
        return carried

    def _is_fence(self, payload: bytes) -> bool:
        if not concerns_resizing(payload):
            return False
        try:
            event = decode(payload)
        except EventLayerError:
            return False
        return isinstance(event, Fence) and event.generation >= self._shape.generation

    def _copied(self, payload: bytes, now_ms: int) -> tuple[int, bytes] | None:
        """Return query partition and payload in this generation; None for an expired entry, or one that its sender repeats."""
        if concerns_subscriptions(payload):
            return None
        try:
            if concerns_resizing(payload):
                event = decode(payload)
                if isinstance(event, Fence) or event.registration.expires_at_ms <= now_ms:
                    return None
                query_id, fields = event.registration.query_id, bson.decode(payload)
                payload, as_of = fields["r"], max(self.as_of, int(fields["as"]))
                return self._partition(query_id), encode_taken_over(payload, as_of if self.as_of else NOT_KNOWN)
            raw = RawBSONDocument(payload)
            if raw["t"] == "c":
                return self._partition(raw["qid"]), payload
            if raw["t"] == "r" and raw["exp"] > now_ms:
                return self._partition(raw["qid"]), encode_taken_over(payload, self.as_of)
        except Exception as error:  # the cells could not read it either, so no response relies on it
            self._telemetry.failure("event-layer", "resize.entry_unreadable", error)
        return None

    def _partition(self, query_id: str) -> int:
        return query_partition(query_id, self._shape.query_partitions)

    def _put(self) -> None:
        self._layer.put(self._name, bson.encode({"v": 1, "as_of": self.as_of, "done": self.done}))


def _pipelines(deployment: str, shape: GridShape) -> list[str]:
    partitions = range(shape.query_partitions)
    names = [
        name(deployment, each, shape.generation)
        for name in (streams.writes, streams.early_writes)
        for each in range(shape.write_partitions)
    ]
    for name in (streams.queries, streams.matched, streams.results):
        names += [name(deployment, each, shape.generation) for each in partitions]
    return names
