"""Resume position of ingest in the change stream, a value kept beside the pipelines."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import bson

from quaestor.event_layer import offsets
from quaestor.model import Version
from quaestor.ports import EventLayer

_SAVE_EVERY_S: Final = 0.1
"""Time between two saves while events keep coming; an ingest that dies repeats the events appended since."""


class ResumePosition(NamedTuple):
    """Place in the change stream, with the data needed to continue from there.

    token: resume token, BSON; None: just after `version`.
    version: the watermark.
    database: identity of the replica set; None if this user may not read it.
    election: the primary's election and process, see `Probe`; None: not known.
    gap: version of the last gap; a cell whose checkpoint lies below it may have missed the gap.
    reached: newest version delivered early (see overtaking.py); apps may date their reads by it.
    life: identity of the event layer's data at the save (offsets.epoch_of). The position holds only for pipelines of that life.
    """

    token: bytes | None
    version: Version
    database: str | None
    election: str | None = None
    gap: Version = 0
    life: str | None = None
    reached: Version = 0

    def encode(self) -> bytes:
        """Return the position as BSON."""
        return bson.encode({"v": 1} | self._asdict())

    @classmethod
    def decode(cls, value: bytes) -> ResumePosition:
        """Return the position in a value.

        Earlier releases did not note their gaps: a gap may lie just behind the watermark.
        """
        fields = bson.decode(value)
        version = int(fields["version"])
        gap = int(fields.get("gap", version + 1))
        return cls(
            fields["token"],
            version,
            fields["database"],
            fields.get("election"),
            gap,
            fields.get("life"),
            fields.get("reached", 0),
        )


class ResumePositionStore:
    """Named value in the event layer that holds a resume position. Methods raise EventLayerError."""

    def __init__(self, layer: EventLayer, name: str) -> None:
        self._layer = layer
        self._name = name
        self._due_s = 0.0

    def due(self) -> bool:
        """Whether it is time to save again while events keep coming."""
        return time.monotonic() >= self._due_s

    def load(self) -> ResumePosition | None:
        """Return the position saved last, if there is one."""
        value = self._layer.get(self._name)
        return None if value is None else ResumePosition.decode(value)

    def save(self, position: ResumePosition) -> None:
        """Save this position, with the identity of the event layer's present data."""
        self._due_s = time.monotonic() + _SAVE_EVERY_S
        self._layer.put(self._name, position._replace(life=self._life()).encode())

    def precedes_loss(self, position: ResumePosition) -> bool:
        """Whether the event layer has lost data since this position was saved. A position without a life counts as not lost."""
        return position.life not in (None, self._life())

    def _life(self) -> str | None:
        return offsets.epoch_of(self._layer.offset_at(self._name, 0))
