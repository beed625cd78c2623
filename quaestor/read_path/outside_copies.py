"""Copies outside our own stores: how long browsers and CDNs may keep an entry without revalidation.

An entry is used here for as long as its registrations guard it. Copies in browsers and CDNs have an estimated lifetime. The Cache
Sketch lists a written entry until the last copy is dead, so longer lifetimes fill the sketch. When the latest lifetime is over
and the entry still lives, the next request starts another one of the same length. The handler need not confirm the entry for
that: a live registration proves that nothing has changed.
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
"""After a lifetime could not be reported, copies have none for so long."""


class OutsideCopies:
    """The lifetimes of copies outside, in one process. Use from one event loop."""

    def __init__(
        self, *, sketch: CacheSketch, index: DependencyIndex, usability: Usability, telemetry: Telemetry, clock: Clock
    ) -> None:
        self._sketch = sketch
        self._index = index
        self._usability = usability
        self._telemetry = telemetry
        self._clock = clock

    def over(self, resident: Resident) -> bool:
        """Whether copies handed out now would be too old at once, although the entry is not. No I/O."""
        return resident.copies_until_ms <= self._clock() < resident.response.fresh_until_ms

    async def renew(self, resident: Resident, url: str) -> bool:
        """Start another lifetime for copies handed out from now on. The sketch is notified before any client keeps a copy.

        The index is notified once more. Another process may have worked off a write that this one has not heard of. That process
        has then reported the entry's copies as outdated for their last lifetime only, and the index now reports this lifetime
        too.

        url: the requested one.
        False: copies must be forbidden, or the entry has died meanwhile (look it up again).
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
        """Note that clients with the sketch receive no lifetime for a moment: the last one could not be reported."""
        now_ms = self._clock()
        resident.renew_copies(now_ms, min(now_ms + _AGAIN_MS, resident.response.fresh_until_ms))

    def leave_none(self, resident: Resident) -> None:
        """Note that this process allows no copies of this entry outside: there is no lifetime to renew."""
        resident.renew_copies(resident.copies_from_ms, resident.response.fresh_until_ms)
