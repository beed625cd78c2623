"""Run of a grid, as the deployment's state records it: entered, fresh, serving, over.

Grids on Spark, of local processes and elected ones have one each.
"""

from __future__ import annotations

import uuid
from typing import Final

from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification
from quaestor.invalidation.grid.resizing.state import (
    GridState,
    Run,
    alone,
    enter,
    enter_elected,
    get_state,
    put_state,
)
from quaestor.model import Cell, GridShape, Heartbeat
from quaestor.ports import EventLayer, LeasingLayer

_AT_ONCE: Final = 1_000


class FreshCells:
    """Cells of one grid that have proved, since a moment, that ingest feeds them. Not thread-safe.

    fresh: the cells with a proof.
    """

    def __init__(self, layer: EventLayer, deployment: str, shape: GridShape, *, since_ms: int) -> None:
        self.fresh: set[Cell] = set()
        self._layer = layer
        self._stream = streams.notifications(deployment)
        self._after = layer.offset_at(self._stream, since_ms)
        self._shape = shape
        self._since_ms = since_ms

    @property
    def complete(self) -> bool:
        """Whether all cells have a proof."""
        return len(self.fresh) == len(self._shape.cells)

    def look(self, *, wait_ms: int) -> None:
        """Read the next heartbeats, with a bounded wait. Raises EventLayerError."""
        for entry in self._layer.read({self._stream: self._after}, count=_AT_ONCE, block_ms=wait_ms):
            self._after = entry.offset
            beat = decode_notification(entry.payload)
            if isinstance(beat, Heartbeat) and beat.shape == self._shape and beat.fresh_as_of_ms >= self._since_ms:
                self.fresh.add(beat.cell)


class GridRun:
    """Run of one grid. Methods raise EventLayerError.

    own: the run; its generation is known after `enter`.
    earlier: grids that it takes over from.
    serves: it has taken over from all of them.
    """

    def __init__(self, deployment: str, shape: GridShape, *, elected: bool = False) -> None:
        self.own = Run(run=uuid.uuid4().hex, shape=shape, elected=elected)
        self.earlier: tuple[GridShape, ...] = ()
        self.serves = False
        self._deployment = deployment

    def enter(self, layer: EventLayer) -> None:
        """Enter this grid in the state: at once in place of a grid of the same shape, else beside the other."""
        self.own, self.earlier = enter(layer, self._deployment, self.own.run, self.own.shape)

    def enter_elected(self, layer: LeasingLayer) -> bool:
        """Enter an elected grid in the state. Return False if another grid is there."""
        entered = enter_elected(layer, self._deployment, self.own.run, self.own.shape)
        if entered is None:
            return False
        self.own, self.earlier = entered
        return True

    def concerned(self, layer: EventLayer) -> bool:
        """Whether this run shall go on, according to the state."""
        state = get_state(layer, self._deployment)
        return state is None or state.concerns(self.own.run) or state.forgets(self.own)

    def promote(self, layer: EventLayer) -> None:
        """Record that every cell is fresh, so every registration has been taken over: the grid before this one may stop."""
        self.serves = True
        state = get_state(layer, self._deployment)
        if state is not None:
            put_state(layer, self._deployment, state.promoted(self.own.run))

    def remind(self, layer: EventLayer) -> None:
        """Record this run again, unless another has taken over: Redis may come back empty."""
        state = get_state(layer, self._deployment)
        if state is None or state.forgets(self.own):
            put_state(layer, self._deployment, self._alone())

    def end(self, layer: EventLayer) -> None:
        """Record the end of this run, so that its tasks end."""
        current = get_state(layer, self._deployment) or self._alone()
        if (ended := current.ended(self.own.run)) != current:
            put_state(layer, self._deployment, ended)

    def _alone(self) -> GridState:
        return alone(self.own, () if self.serves else self.earlier)
