"""Where ingest has got to in the change stream, as the value that it keeps beside the pipelines."""

from __future__ import annotations

from typing import NamedTuple

import bson

from quaestor.model import Version


class Position(NamedTuple):
    """token: resume token, BSON; None: just after `version`.
    version: the watermark.

    database: identity of the replica set, None if it may not be asked for.
    election: the one that made the primary what it was; None: not known.
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
        return bson.encode({"v": 1} | self._asdict())

    @classmethod
    def decode(cls, value: bytes) -> Position:
        """Earlier releases did not note their gaps: there may have been one just behind the watermark."""
        fields = bson.decode(value)
        version = int(fields["version"])
        gap = int(fields.get("gap", version + 1))
        return cls(fields["token"], version, fields["database"], fields.get("election"), gap, fields.get("life"))
