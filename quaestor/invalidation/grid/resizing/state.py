"""State of the grid, as its value in the event layer: which run serves, and which one is about to take over from it.

Tasks of any other run end. The first grid of a deployment has generation 0; one that is started with other partitions, or
after a take-over that was not finished, has the next one, and takes over from all that may still guard anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import bson

from quaestor.event_layer import offsets, streams
from quaestor.event_layer.shapes import decode_shape, encode_shape
from quaestor.model import GridShape
from quaestor.ports import EventLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of a grid.

    run: unique; empty for one that is over.
    """

    run: str
    shape: GridShape


@dataclass(frozen=True, slots=True, kw_only=True)
class GridState:
    """The runs of a deployment, as far as they matter now.

    serving: the one that apps rely on.
    successor: the one that is about to take over.
    earlier: generations between these two whose take-over was begun and never finished.
    stopped: the serving one was told to end.
    """

    serving: Run
    successor: Run | None = None
    earlier: tuple[GridShape, ...] = ()
    stopped: bool = False

    @property
    def newest(self) -> int:
        """The latest generation that this knows of."""
        shapes = [self.serving.shape, *self.earlier]
        if self.successor is not None:
            shapes.append(self.successor.shape)
        return max(shape.generation for shape in shapes)

    def concerns(self, run: str) -> bool:
        """Whether this run is to go on."""
        if self.successor is not None and self.successor.run == run:
            return True
        return self.serving.run == run and not self.stopped

    def forgets(self, own: Run) -> bool:
        """Whether this says nothing of a run that is later than all it knows of.

        It was then written by somebody who could not know of it, and that run says so again. One that was ended or overtaken is
        known of.
        """
        return not self.concerns(own.run) and self.newest < own.shape.generation

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
        successor = Run(run=run, shape=replace(shape, generation=self.newest + 1))
        return replace(self, successor=successor, earlier=earlier), successor, (self.serving.shape, *earlier)

    def overtaken_by(self, other: Run) -> GridState:
        """The state if this run, of which it does not know, was started as the successor."""
        unfinished = () if self.successor is None else (self.successor.shape,)
        return replace(self, successor=other, earlier=(*self.earlier, *unfinished))

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


def alone(own: Run, earlier: Sequence[GridShape] = ()) -> GridState:
    """The state if nobody else said anything.

    earlier: whom this run has not taken over from yet; their own runs are over.
    """
    if not earlier:
        return GridState(serving=own)
    return GridState(serving=Run(run="", shape=earlier[0]), successor=own, earlier=tuple(earlier[1:]))


def enter(layer: EventLayer, deployment: str, run: str, shape: GridShape) -> tuple[Run, tuple[GridShape, ...]]:
    """Say that a grid with these partitions is there. Returns its run, with its generation, and whom it takes over from.

    Several may do so at once, and none of them need see what the others write: a generation is that of the first who claims it,
    and whoever comes later takes over from him too. Which of them goes on is settled by the state that is written last.
    Raises EventLayerError.
    """
    known = get_state(layer, deployment)
    if known is None:
        own = Run(run=run, shape=replace(shape, generation=0))
        known = GridState(serving=_claimed(layer, deployment, own))
        if known.serving == own:
            put_state(layer, deployment, known)
            return own, ()
    while True:
        state, own, earlier = known.started(run, shape)
        if own.shape.generation > known.newest:
            holder: Run | None = _claimed(layer, deployment, own)
        else:
            holder = _holder(layer, deployment, known.newest + 1)
        if holder is None or holder == own:
            put_state(layer, deployment, state)
            return own, earlier
        known = known.overtaken_by(holder)


def _claimed(layer: EventLayer, deployment: str, own: Run) -> Run:
    """Who has this run's generation: that run, or who was first. The order of a pipeline is the same for all."""
    name = streams.claims(deployment, own.shape.generation)
    layer.append(name, [bson.encode({"v": 1, "run": own.run, "shape": encode_shape(own.shape)})])
    holder = _holder(layer, deployment, own.shape.generation)
    return own if holder is None else holder


def _holder(layer: EventLayer, deployment: str, generation: int) -> Run | None:
    for entry in layer.read({streams.claims(deployment, generation): offsets.START}, count=1, block_ms=0):
        fields = bson.decode(entry.payload)
        return Run(run=fields["run"], shape=decode_shape(fields["shape"]))
    return None


def put_state(layer: EventLayer, deployment: str, state: GridState) -> None:
    """Write the state. Raises EventLayerError."""
    serving, successor = state.serving, state.successor
    fields = {
        "v": 1, "run": serving.run, "shape": encode_shape(serving.shape), "stopped": state.stopped,
        "earlier": [encode_shape(shape) for shape in state.earlier],
        "next": None if successor is None else {"run": successor.run, "shape": encode_shape(successor.shape)},
    }  # fmt: skip
    layer.put(streams.grid(deployment), bson.encode(fields))


def get_state(layer: EventLayer, deployment: str) -> GridState | None:
    """The state written last; None if no grid was ever started on a cluster. Raises EventLayerError."""
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
