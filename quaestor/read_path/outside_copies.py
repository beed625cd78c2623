"""Copies outside our own stores: how long whoever is handed an entry now may keep it, unasked.

An entry is used here for as long as its registrations guard it. Copies in browsers and CDNs get a lifetime that is estimated: the
Cache Sketch lists a written entry until the last of them is dead, so the longer they live, the fuller it is. When the lifetime
that was given last is over and the entry still lives, the next request gives another one of the same length, as if the handler
had confirmed it at that moment: that nothing has changed since is what a live registration says.
"""

from __future__ import annotations

import asyncio

from quaestor.clock import Clock
from quaestor.errors import SketchError, StoreError
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CacheSketch, DependencyIndex
from quaestor.read_path.entries import COPY_SLACK_MS, dependent, sketch_name
from quaestor.read_path.usability import Usability
from quaestor.store.memory import Resident, first_copies_until_ms

_AGAIN_MS = 1_000
"""After a lifetime could not be reported, requests do without one for so long."""


class OutsideCopies:
    """The keeper of the copies' lifetimes in one process. Use from one event loop."""

    def __init__(
        self, *, sketch: CacheSketch, index: DependencyIndex, usability: Usability, telemetry: Telemetry, clock: Clock
    ) -> None:
        self._sketch = sketch
        self._index = index
        self._usability = usability
        self._telemetry = telemetry
        self._clock = clock

    def over(self, resident: Resident) -> bool:
        """Whether copies handed out now would be too old at once, though the entry is not. No I/O."""
        return resident.copies_until_ms <= self._clock() < resident.response.fresh_until_ms

    async def renew(self, resident: Resident, url: str) -> bool:
        """Give copies that are handed out from now on another lifetime. The sketch knows of it before anyone keeps one.

        The index is told once more: if another process has worked off a write of which this one has not heard, the entry's copies
        were reported as outdated for their last lifetime only. Then the index has this one's claim reported too.

        url: the one that is asked for.
        False: the answer must go out without leave to keep, or the entry has died meanwhile (look it up again).
        """
        response, now_ms = resident.response, self._clock()
        length_ms = first_copies_until_ms(response) - response.stored_at_ms
        until_ms = min(now_ms + length_ms, response.fresh_until_ms)
        try:
            await asyncio.gather(
                self._index.add(dependent(response, (url,))),
                self._sketch.report_read(sketch_name(response), expires_at_ms=until_ms + COPY_SLACK_MS, now_ms=now_ms),
            )
        except SketchError as error:
            self._telemetry.failure("sketch", "read_path.sketch_failed", error)
            return False
        except StoreError as error:
            self._telemetry.failure("store", "read_path.index_failed", error)
            return False
        resident.renew_copies(now_ms, until_ms, reported=True)
        return self._usability.servable(response)

    def leave_none_yet(self, resident: Resident) -> None:
        """Note that nobody with the sketch is given a lifetime for a moment: the last one could not be reported."""
        now_ms = self._clock()
        resident.renew_copies(now_ms, min(now_ms + _AGAIN_MS, resident.response.fresh_until_ms))

    def leave_none(self, resident: Resident) -> None:
        """Note that this process lets nobody outside keep this entry: there is nothing to be renewed."""
        resident.renew_copies(resident.copies_from_ms, resident.response.fresh_until_ms)
