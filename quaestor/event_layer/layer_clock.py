"""Clock of the event layer, as far as read entries show it, beside the reader's own clock.

Apps lease, and others read, by clocks that a reader does not see. A part forgets or trims only when its own clock and the event
layer's agree that it is time. A part checks for missed entries when either clock shows that it is time. With a wrong clock,
forgetting comes too late and checks too often.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.clock import Clock
from quaestor.event_layer import offsets
from quaestor.ports import StreamEntry


class LayerClock:
    """Event layer's clock in the view of one reader. Not thread-safe. Every call is O(1)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fast_ms: int | None = None
        self._slow_ms = 0

    def read(self, entries: Sequence[StreamEntry]) -> None:
        """Take note of entries read just now; the last of them was appended before now."""
        if entries:
            fast_ms = self._clock() - offsets.appended_at_ms(entries[-1].offset)
            self._fast_ms = max(0, fast_ms)
            self._slow_ms = max(self._slow_ms, -fast_ms)

    @property
    def agreed_ms(self) -> int:
        """Time that has come by both clocks; 0 before anything was read."""
        return 0 if self._fast_ms is None else self._clock() - self._fast_ms

    @property
    def latest_ms(self) -> int:
        """Present time by the clock that is ahead."""
        return self._clock() + self._slow_ms
