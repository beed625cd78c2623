"""Position of a cell in its pipelines, and the checkpoint that it leaves for its successor.

A checkpoint states: at this offset of the write pipeline, every write up to this version had been matched. Such points lie
before each entry with a new version, and at ticks with a version. No such point lies within a transaction, whose writes
share a version. A registration taken over from the cell before holds as of that version.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import bson

from quaestor.event_layer import offsets
from quaestor.event_layer.shapes import encode_shape
from quaestor.model import GridShape, Version
from quaestor.ports import EventLayer


class CompletePoint(NamedTuple):
    """Place in the write pipeline at which every write up to a version had been matched.

    writes: offset of the last entry before it.
    """

    writes: str
    version: Version


class Checkpoint(NamedTuple):
    """Position of a cell at a complete point.

    queries, writes: offsets in the query and the write pipeline.
    version: version of the complete point at `writes`.
    """

    queries: str
    writes: str
    version: Version

    def encode(self, shape: GridShape) -> bytes:
        """Return the value kept beside the pipelines."""
        return bson.encode({"v": 1, "shape": encode_shape(shape)} | self._asdict())

    @classmethod
    def decode(cls, value: bytes, shape: GridShape) -> Checkpoint | None:
        """Return the checkpoint in a value; None for a grid of another shape, whose registrations lie in other partitions."""
        fields = bson.decode(value)
        if fields["v"] != 1 or fields["shape"] != encode_shape(shape):
            return None
        return cls(fields["queries"], fields["writes"], int(fields["version"]))


class CellPosition(NamedTuple):
    """Place of a cell in its two pipelines.

    queries, writes: all entries up to these offsets have been processed.
    complete: the last complete point at or before `writes`; None: none is known.
    inherited: the cell before may have activated registrations up to this offset of the query pipeline.
    """

    queries: str
    writes: str
    complete: CompletePoint | None = None
    inherited: str = offsets.START

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that may be saved now."""
        return None if self.complete is None else Checkpoint(self.queries, *self.complete)


BEGINNING: Final = CellPosition(offsets.START, offsets.START)
"""Position before every entry of the pipelines."""


class CheckpointStore:
    """Named value in the event layer that holds a cell's checkpoint. Methods raise EventLayerError."""

    def __init__(self, layer: EventLayer, name: str, shape: GridShape) -> None:
        self._layer = layer
        self._name = name
        self._shape = shape

    def load(self) -> Checkpoint | None:
        """Return the checkpoint saved last by this cell of a grid of this shape."""
        value = self._layer.get(self._name)
        return None if value is None else Checkpoint.decode(value, self._shape)

    def save(self, position: CellPosition) -> None:
        """Save the checkpoint of this position, if it has one."""
        if (checkpoint := position.checkpoint) is not None:
            self._layer.put(self._name, checkpoint.encode(self._shape))
