"""What a cell leaves behind for the one that replaces it: how far it got, and which entries are still needed.

A checkpoint says: at this offset of the write pipeline every write up to this version had been matched. Such points lie
in front of each entry with a new version, and at ticks that name a version; not in the middle of a transaction, whose
writes share one. A registration taken over from the cell before holds as of that version.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import bson

from quaestor.event_layer.shapes import encode_shape
from quaestor.model import GridShape, Version


class Checkpoint(NamedTuple):
    """Offsets in the query and the write pipeline; `version` belongs to `writes`."""

    queries: str
    writes: str
    version: Version

    def encode(self, shape: GridShape) -> bytes:
        """As the value kept beside the pipelines."""
        return bson.encode({"v": 1, "shape": encode_shape(shape)} | self._asdict())

    @classmethod
    def decode(cls, value: bytes, shape: GridShape) -> Checkpoint | None:
        """None if it is that of a grid of another shape: its registrations lie in other partitions."""
        fields = bson.decode(value)
        if fields["v"] != 1 or fields["shape"] != encode_shape(shape):
            return None
        return cls(fields["queries"], fields["writes"], int(fields["version"]))


class LongestLeases:
    """Since when registrations have to be kept in the query pipeline, without remembering each of them.

    Kept are only those whose lease outlasts every earlier one's: the first of these that is not over is the oldest that
    anybody still needs. Registrations that died early are counted as alive.
    """

    def __init__(self) -> None:
        self._leases: deque[tuple[int, int]] = deque()

    def add(self, appended_at_ms: int, expires_at_ms: int) -> None:
        if not self._leases or expires_at_ms > self._leases[-1][1]:
            self._leases.append((appended_at_ms, expires_at_ms))

    def gone(self, before_ms: int) -> None:
        """What was appended before then has been trimmed, needed or not."""
        while self._leases and self._leases[0][0] < before_ms:
            self._leases.popleft()

    def needed_since_ms(self, now_ms: int) -> int:
        while self._leases and self._leases[0][1] <= now_ms:
            self._leases.popleft()
        return self._leases[0][0] if self._leases else now_ms
