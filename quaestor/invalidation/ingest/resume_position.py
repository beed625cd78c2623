"""Resume position of ingest in the change stream, a value that it keeps beside the pipelines."""

from __future__ import annotations

from typing import NamedTuple

import bson

from quaestor.event_layer import offsets
from quaestor.model import Version
from quaestor.ports import EventLayer


class ResumePosition(NamedTuple):
    """A place in the change stream, and what has to be known to go on from there.

    token: resume token, BSON; None: just after `version`.
    version: the watermark.
    database: identity of the replica set, None if it may not be asked for.
    election: the primary's election and process, see `Probe`; None: not known.
    gap: version of the last gap; a cell whose checkpoint lies below it may not have heard of that.
    life: of the event layer's data when it was saved (offsets.epoch_of): what is said here to be in the pipelines is
        in those of that life.
    """

    token: bytes | None
    version: Version
    database: str | None
    election: str | None = None
    gap: Version = 0
    life: str | None = None

    def encode(self) -> bytes:
        """The value, as BSON."""
        return bson.encode({"v": 1} | self._asdict())

    @classmethod
    def decode(cls, value: bytes) -> ResumePosition:
        """The position in a value.

        Earlier releases did not note their gaps: there may have been one just behind the watermark.
        """
        fields = bson.decode(value)
        version = int(fields["version"])
        gap = int(fields.get("gap", version + 1))
        return cls(fields["token"], version, fields["database"], fields.get("election"), gap, fields.get("life"))


class ResumePositionStore:
    """The named value in the event layer that holds a resume position. Methods raise EventLayerError."""

    def __init__(self, layer: EventLayer, name: str) -> None:
        self._layer = layer
        self._name = name

    def load(self) -> ResumePosition | None:
        """The position saved last, if there is one."""
        value = self._layer.get(self._name)
        return None if value is None else ResumePosition.decode(value)

    def save(self, position: ResumePosition) -> None:
        """Keep this position, as of the data that the event layer has now."""
        self._layer.put(self._name, position._replace(life=self._life()).encode())

    def precedes_loss(self, position: ResumePosition) -> bool:
        """Whether the event layer has lost data since this position was saved. What it does not know it did not lose."""
        return position.life not in (None, self._life())

    def _life(self) -> str | None:
        return offsets.epoch_of(self._layer.offset_at(self._name, 0))
