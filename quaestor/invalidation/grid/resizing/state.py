"""State of the grid, as its value in the event layer: the run that serves, and the run that is about to take over.

Tasks of any other run end. The first grid of a deployment has generation 0. A grid with other partitions, or after an
unfinished takeover, has the next generation, and takes over from all grids that may still guard registrations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import bson

from quaestor.event_layer import offsets, streams
from quaestor.event_layer.shapes import decode_shape, encode_shape
from quaestor.model import GridShape
from quaestor.ports import EventLayer, LeasingLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of a grid.

    run: unique name; empty for a run that is over.
    elected: an app process runs it, because there is no other grid.
    """

    run: str
    shape: GridShape
    elected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GridState:
    """Current runs of a deployment.

    serving: run that apps rely on.
    successor: run that is about to take over.
    earlier: generations between these two whose takeover began and never finished.
    stopped: the serving run was ordered to end.
    """

    serving: Run
    successor: Run | None = None
    earlier: tuple[GridShape, ...] = ()
    stopped: bool = False

    @property
    def newest(self) -> int:
        """The latest known generation."""
        shapes = [self.serving.shape, *self.earlier]
        if self.successor is not None:
            shapes.append(self.successor.shape)
        return max(shape.generation for shape in shapes)

    def concerns(self, run: str) -> bool:
        """Whether this run shall go on."""
        if self.successor is not None and self.successor.run == run:
            return True
        return self.serving.run == run and not self.stopped

    @property
    def unattended(self) -> bool:
        """Whether app processes may elect one of them to run the grid: no other grid serves, or is about to."""
        if self.serving.elected:
            return True
        ended = self.stopped or not self.serving.run
        return ended and (self.successor is None or self.successor.elected or not self.successor.run)

    def forgets(self, own: Run) -> bool:
        """Whether this state lacks a run that is later than all its generations.

        Its writer could then not know of the run, and the run records itself again. Ended and overtaken runs are known.
        """
        return not self.concerns(own.run) and self.newest < own.shape.generation

    def started(
        self, run: str, shape: GridShape, *, elected: bool = False
    ) -> tuple[GridState, Run, tuple[GridShape, ...]]:
        """Return the state after the start of a grid with these partitions; its run with its generation; its predecessors."""
        same = (shape.query_partitions, shape.write_partitions) == (
            self.serving.shape.query_partitions,
            self.serving.shape.write_partitions,
        )
        if same and self.successor is None:
            again = Run(run=run, shape=self.serving.shape, elected=elected)
            return GridState(serving=again), again, ()
        unfinished = () if self.successor is None else (self.successor.shape,)
        earlier = (*self.earlier, *unfinished)
        successor = Run(run=run, shape=replace(shape, generation=self.newest + 1), elected=elected)
        return replace(self, successor=successor, earlier=earlier), successor, (self.serving.shape, *earlier)

    def elected_anew(self, run: str) -> tuple[GridState, Run, tuple[GridShape, ...]] | None:
        """Return the state after this run replaced an elected one, in its generation; None if there was none."""
        if self.successor is not None and self.successor.elected:
            own = replace(self.successor, run=run)
            return replace(self, successor=own), own, (self.serving.shape, *self.earlier)
        if self.serving.elected:
            own = replace(self.serving, run=run)
            return replace(self, serving=own), own, ()
        return None

    def overtaken_by(self, other: Run) -> GridState:
        """Return the state after the start of an unknown run as the successor."""
        unfinished = () if self.successor is None else (self.successor.shape,)
        return replace(self, successor=other, earlier=(*self.earlier, *unfinished))

    def promoted(self, run: str) -> GridState:
        """Return the state after this run has taken over; unchanged if it is not the successor."""
        if self.successor is None or self.successor.run != run:
            return self
        return GridState(serving=self.successor)

    def ended(self, run: str) -> GridState:
        """Return the state after this run was ordered to stop. A successor leaves its generation behind as unfinished."""
        if self.successor is not None and self.successor.run == run:
            return replace(self, successor=replace(self.successor, run=""))
        return replace(self, stopped=True) if self.serving.run == run else self


def alone(own: Run, earlier: Sequence[GridShape] = ()) -> GridState:
    """Return the state that knows only this run.

    earlier: shapes that this run has not taken over from yet; their own runs are over.
    """
    if not earlier:
        return GridState(serving=own)
    return GridState(serving=Run(run="", shape=earlier[0]), successor=own, earlier=tuple(earlier[1:]))


def enter(layer: EventLayer, deployment: str, run: str, shape: GridShape) -> tuple[Run, tuple[GridShape, ...]]:
    """Enter a grid with these partitions; return its run, with its generation, and the shapes that it takes over from.

    Several grids may enter at once, without seeing each other's writes. A generation belongs to its first claimant, and
    later claimants take over from that one too. The state written last decides which of them goes on. Raises EventLayerError.
    """
    state, own, earlier = _entered(layer, deployment, Run(run=run, shape=shape), get_state(layer, deployment))
    put_state(layer, deployment, state)
    return own, earlier


def enter_elected(
    layer: LeasingLayer, deployment: str, run: str, shape: GridShape
) -> tuple[Run, tuple[GridShape, ...]] | None:
    """Enter an elected grid, which replaces only the elected one before it.

    None if another grid is there, or was started at the same moment. Raises EventLayerError.
    """
    name = streams.grid(deployment)
    before = layer.get(name)
    known = None if before is None else _decoded(before)
    if known is not None and not known.unattended:
        return None
    entered = None if known is None else known.elected_anew(run)
    state, own, earlier = entered or _entered(layer, deployment, Run(run=run, shape=shape, elected=True), known)
    return (own, earlier) if layer.swap(name, before, _encoded(state)) else None


def _entered(
    layer: EventLayer, deployment: str, new: Run, known: GridState | None
) -> tuple[GridState, Run, tuple[GridShape, ...]]:
    if known is None:
        own = replace(new, shape=replace(new.shape, generation=0))
        known = GridState(serving=_claimed(layer, deployment, own))
        if known.serving == own:
            return known, own, ()
    while True:
        state, own, earlier = known.started(new.run, new.shape, elected=new.elected)
        if own.shape.generation > known.newest:
            holder: Run | None = _claimed(layer, deployment, own)
        else:
            holder = _holder(layer, deployment, known.newest + 1)
        if holder is None or holder == own:
            return state, own, earlier
        known = known.overtaken_by(holder)


def _claimed(layer: EventLayer, deployment: str, own: Run) -> Run:
    """Return the owner of this run's generation: the run itself, or the first claimant.

    A pipeline's order is the same for all.
    """
    name = streams.claims(deployment, own.shape.generation)
    layer.append(name, [bson.encode({"v": 1, **_fields(own)})])
    holder = _holder(layer, deployment, own.shape.generation)
    return own if holder is None else holder


def _holder(layer: EventLayer, deployment: str, generation: int) -> Run | None:
    for entry in layer.read({streams.claims(deployment, generation): offsets.START}, count=1, block_ms=0):
        return _run(bson.decode(entry.payload))
    return None


def put_state(layer: EventLayer, deployment: str, state: GridState) -> None:
    """Write the state. Raises EventLayerError."""
    layer.put(streams.grid(deployment), _encoded(state))


def get_state(layer: EventLayer, deployment: str) -> GridState | None:
    """Return the state written last; None if no grid was ever started. Raises EventLayerError."""
    value = layer.get(streams.grid(deployment))
    return None if value is None else _decoded(value)


def _encoded(state: GridState) -> bytes:
    successor = state.successor
    return bson.encode(
        {
            "v": 1, **_fields(state.serving), "stopped": state.stopped,
            "earlier": [encode_shape(shape) for shape in state.earlier],
            "next": None if successor is None else _fields(successor),
        }
    )  # fmt: skip


def _decoded(value: bytes) -> GridState:
    fields = bson.decode(value)
    successor = fields.get("next")
    return GridState(
        serving=_run(fields),
        successor=None if successor is None else _run(successor),
        earlier=tuple(map(decode_shape, fields.get("earlier", ()))),
        stopped=fields["stopped"],
    )


def _fields(run: Run) -> dict[str, Any]:
    return {"run": run.run, "shape": encode_shape(run.shape), "elected": run.elected}


def _run(fields: Mapping[str, Any]) -> Run:
    return Run(run=fields["run"], shape=decode_shape(fields["shape"]), elected=fields.get("elected", False))
