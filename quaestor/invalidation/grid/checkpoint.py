"""Position of a cell in its pipelines, and the checkpoint of it that is left behind for the cell that replaces it.

A checkpoint says: at this offset of the write pipeline every write up to this version had been matched. Such points lie
in front of each entry with a new version, and at ticks that name a version; not in the middle of a transaction, whose
writes share one. A registration taken over from the cell before holds as of that version.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import bson

from quaestor.event_layer import offsets
from quaestor.event_layer.shapes import encode_shape
from quaestor.model import GridShape, Version
from quaestor.ports import EventLayer


class CompletePoint(NamedTuple):
    """A place in the write pipeline at which every write up to a version had been matched.

    writes: offset of the last entry before it.
    """

    writes: str
    version: Version


class Checkpoint(NamedTuple):
    """A cell's position at a complete point.

    queries, writes: offsets in the query and the write pipeline.
    version: belongs to `writes`.
    """

    queries: str
    writes: str
    version: Version

    def encode(self, shape: GridShape) -> bytes:
        """The value kept beside the pipelines."""
        return bson.encode({"v": 1, "shape": encode_shape(shape)} | self._asdict())

    @classmethod
    def decode(cls, value: bytes, shape: GridShape) -> Checkpoint | None:
        """The checkpoint in a value; None if it is that of a grid of another shape: its registrations lie in other
        partitions."""
        fields = bson.decode(value)
        if fields["v"] != 1 or fields["shape"] != encode_shape(shape):
            return None
        return cls(fields["queries"], fields["writes"], int(fields["version"]))


class CellPosition(NamedTuple):
    """A cell's place in its two pipelines.

    queries, writes: everything up to these offsets has been dealt with.
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
"""In front of everything that the pipelines hold."""


class CheckpointStore:
    """The named value in the event layer that holds a cell's checkpoint. Methods raise EventLayerError."""

    def __init__(self, layer: EventLayer, name: str, shape: GridShape) -> None:
        self._layer = layer
        self._name = name
        self._shape = shape

    def load(self) -> Checkpoint | None:
        """The checkpoint saved last by this cell of a grid of this shape."""
        value = self._layer.get(self._name)
        return None if value is None else Checkpoint.decode(value, self._shape)

    def save(self, position: CellPosition) -> None:
        """Keep the checkpoint of this position, if it has one."""
        if (checkpoint := position.checkpoint) is not None:
            self._layer.put(self._name, checkpoint.encode(self._shape))
