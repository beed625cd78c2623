"""Epoch of a stage: a name that is unique to one life of the stage.

No earlier or later stage of the partition uses the name; later names are greater.
"""

from __future__ import annotations

import itertools
import uuid

from quaestor.ports import EventLayer


class Epoch:
    """Epoch of one stage, from its beginning to that of the next.

    name: prefix of all names in this epoch.
    began_ms: time of the beginning by the stage's clock, later than every earlier epoch. Epochs grow even if a clock goes
        back, or another host's clock is behind. The event layer reads one value and stores one.
    first: the partition has had no stage before, so nothing was admitted yet.
    """

    def __init__(self, layer: EventLayer, value: str, now_ms: int) -> None:
        """value: the name of the value that stages leave behind. Raises EventLayerError."""
        before = layer.get(value)
        self.first = before is None
        self.began_ms = max(now_ms, 0 if before is None else int(before) + 1)
        layer.put(value, b"%d" % self.began_ms)
        self.name = f"{self.began_ms:015d}-{uuid.uuid4().hex[:8]}"
        self._counter = itertools.count(1)

    def next(self, letter: str) -> str:
        """New name of this epoch."""
        return f"{self.name}:{letter}{next(self._counter):015d}"
