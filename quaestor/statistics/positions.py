"""Positions in the pipelines up to which they were read: the content of Spark's checkpoint, as JSON.

`{"v": 1, "shapes": [[query partitions, write partitions, generation], ...], "tenants": [name, ...],
  "streams": {name: {"at": offset, "n": entries appended up to it, "from": .., "ver": .., "keys": [..]}}}`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from quaestor.errors import EventLayerError
from quaestor.event_layer import offsets
from quaestor.event_layer.shapes import decode_shape, encode_shape
from quaestor.model import GridShape, Version

FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Position in one pipeline.

    offset: offset of the entry read last.
    count: number of entries ever appended up to it; None: not known.
    since, version: of a write pipeline: versions between which all writes were read.
    keys: writes of the newest version among them (see deduplication.py).
    """

    offset: str = offsets.START
    count: int | None = None
    since: Version = 0
    version: Version = 0
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Positions in all pipelines.

    shapes: grids whose pipelines are read, oldest first.
    tenants: tenants besides the one named like the deployment.
    streams: positions by stream; missing: not read yet.
    """

    shapes: tuple[GridShape, ...] = ()
    tenants: tuple[str, ...] = ()
    streams: Mapping[str, Position] = field(default_factory=dict)

    def of(self, stream: str) -> Position:
        """Return the position in this pipeline; its beginning if it was not read yet."""
        return self.streams.get(stream, _BEGINNING)

    def encode(self) -> dict[str, Any]:
        """Return the positions as JSON. Equal positions give equal JSON."""
        return {
            "v": FORMAT,
            "shapes": [encode_shape(shape) for shape in self.shapes],
            "tenants": list(self.tenants),
            "streams": {name: _fields(position) for name, position in sorted(self.streams.items())},
        }


_BEGINNING: Final = Position()


def decode(fields: Mapping[str, Any]) -> Positions:
    """Return the positions in JSON. Raises EventLayerError if another release wrote it."""
    if fields.get("v") != FORMAT:
        raise EventLayerError(
            f"the checkpoint has format {fields.get('v')!r}, but this process reads format {FORMAT}: run the release that "
            "wrote it, or begin with a new directory",
            retryable=False,
        )
    return Positions(
        shapes=tuple(map(decode_shape, fields["shapes"])),
        tenants=tuple(fields["tenants"]),
        streams={name: _position(position) for name, position in fields["streams"].items()},
    )


def _fields(position: Position) -> dict[str, Any]:
    fields: dict[str, Any] = {"at": position.offset}
    if position.count is not None:
        fields["n"] = position.count
    if position.version:
        fields |= {"from": position.since, "ver": position.version, "keys": list(position.keys)}
    return fields


def _position(fields: Mapping[str, Any]) -> Position:
    return Position(
        offset=fields["at"],
        count=fields.get("n"),
        since=fields.get("from", 0),
        version=fields.get("ver", 0),
        keys=tuple(fields.get("keys", ())),
    )
