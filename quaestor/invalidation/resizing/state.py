"""The grid's value in the event layer: which run serves the deployment, and which one is about to take over from it.

Tasks of any other run end. The first grid of a deployment has generation 0; one that is started with other partitions, or
after a take-over that was not finished, has the next one, and takes over from all that may still guard anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import bson

from quaestor.invalidation.event_layer import streams
from quaestor.invalidation.event_layer.shapes import decode_shape, encode_shape
from quaestor.model import GridShape
from quaestor.ports import EventLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of a grid."""

    run: str
    shape: GridShape


@dataclass(frozen=True, slots=True, kw_only=True)
class GridState:
    """earlier: generations between the serving one and the successor whose take-over was begun and never finished."""

    serving: Run
    successor: Run | None = None
    earlier: tuple[GridShape, ...] = ()
    stopped: bool = False

    def concerns(self, run: str) -> bool:
        """Whether this run is to go on."""
        if self.successor is not None and self.successor.run == run:
            return True
        return self.serving.run == run and not self.stopped

    def started(self, run: str, shape: GridShape) -> tuple[GridState, Run, tuple[GridShape, ...]]:
        """The state after a grid with these partitions was started; its run, with its generation; whom it takes over from."""
        same = (shape.query_partitions, shape.write_partitions) == (
            self.serving.shape.query_partitions,
            self.serving.shape.write_partitions,
        )
        if same and self.successor is None:
            again = Run(run=run, shape=self.serving.shape)
            return GridState(serving=again), again, ()
        unfinished = () if self.successor is None else (self.successor.shape,)
        earlier = (*self.earlier, *unfinished)
        newest = max(one.generation for one in (self.serving.shape, *earlier))
        successor = Run(run=run, shape=replace(shape, generation=newest + 1))
        return replace(self, successor=successor, earlier=earlier), successor, (self.serving.shape, *earlier)

    def promoted(self, run: str) -> GridState:
        """The state after this run has taken over; unchanged if it is not the successor."""
        if self.successor is None or self.successor.run != run:
            return self
        return GridState(serving=self.successor)

    def ended(self, run: str) -> GridState:
        """The state after this run was told to stop. A successor leaves its generation behind as unfinished."""
        if self.successor is not None and self.successor.run == run:
            return replace(self, successor=replace(self.successor, run=""))
        return replace(self, stopped=True) if self.serving.run == run else self


def put_state(layer: EventLayer, deployment: str, state: GridState) -> None:
    """Raises EventLayerError."""
    serving, successor = state.serving, state.successor
    fields = {
        "v": 1, "run": serving.run, "shape": encode_shape(serving.shape), "stopped": state.stopped,
        "earlier": [encode_shape(shape) for shape in state.earlier],
        "next": None if successor is None else {"run": successor.run, "shape": encode_shape(successor.shape)},
    }  # fmt: skip
    layer.put(streams.grid(deployment), bson.encode(fields))


def get_state(layer: EventLayer, deployment: str) -> GridState | None:
    """None if no grid was ever started on a cluster. Raises EventLayerError."""
    value = layer.get(streams.grid(deployment))
    if value is None:
        return None
    fields = bson.decode(value)
    successor = fields.get("next")
    return GridState(
        serving=Run(run=fields["run"], shape=decode_shape(fields["shape"])),
        successor=None if successor is None else Run(run=successor["run"], shape=decode_shape(successor["shape"])),
        earlier=tuple(map(decode_shape, fields.get("earlier", ()))),
        stopped=fields["stopped"],
    )
