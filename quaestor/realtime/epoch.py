"""Epoch of a stage: the names that one life of it gives.

No stage before it has given them, nor will any after it; later ones are greater.
"""

from __future__ import annotations

import itertools
import uuid

from quaestor.ports import EventLayer


class Epoch:
    """Epoch of one stage, from its beginning to that of the next.

    name: what all names that it gives begin with.
    began_ms: when, by the stage's clock, and later than every stage before it: epochs grow, also where clocks do not
        (another host's, or one that was set back). One value is read, and one put.
    """

    def __init__(self, layer: EventLayer, value: str, now_ms: int) -> None:
        """value: the name of the value that stages leave behind. Raises EventLayerError."""
        before = layer.get(value)
        self.began_ms = max(now_ms, 0 if before is None else int(before) + 1)
        layer.put(value, b"%d" % self.began_ms)
        self.name = f"{self.began_ms:015d}-{uuid.uuid4().hex[:8]}"
        self._counter = itertools.count(1)

    def next(self, letter: str) -> str:
        """New name of this epoch."""
        return f"{self.name}:{letter}{next(self._counter):015d}"
