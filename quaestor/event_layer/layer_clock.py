"""The event layer's clock, as far as the entries that one reads tell it, beside one's own.

Apps lease, and others read, by clocks that one does not see. Who forgets or trims does so when both his own clock and the event
layer's say so, who doubts whether something is missing does so when either says so: too late and too often, if a clock is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.clock import Clock
from quaestor.event_layer import offsets
from quaestor.ports import StreamEntry


class LayerClock:
    """The event layer's clock as one reader knows it. Not thread-safe. Every call is O(1)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fast_ms: int | None = None
        self._slow_ms = 0

    def read(self, entries: Sequence[StreamEntry]) -> None:
        """Take note of entries that have just been read; the last of them was appended before now."""
        if entries:
            fast_ms = self._clock() - offsets.appended_at_ms(entries[-1].offset)
            self._fast_ms = max(0, fast_ms)
            self._slow_ms = max(self._slow_ms, -fast_ms)

    @property
    def agreed_ms(self) -> int:
        """A moment that has come by both clocks; 0 before anything was read."""
        return 0 if self._fast_ms is None else self._clock() - self._fast_ms

    @property
    def latest_ms(self) -> int:
        """Now, by the one that is ahead."""
        return self._clock() + self._slow_ms
