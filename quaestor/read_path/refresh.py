"""Early refresh of frequently used entries: before their lifetime ends, so that no client waits and requests do not pile up.

XFetch (Vattani, Chierichetti, Lowenstein: Optimal Probabilistic Cache Stampede Prevention, PVLDB 2015) refreshes an entry
early. The lead is its cost (the time to make it) times an exponentially distributed draw. Here one draw is made for each entry
and process instead of for each request, so a hit costs nothing. The first request after the drawn moment begins the refresh; a
lease makes it one for all processes. An entry that no client requests at that time is not refreshed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.read_path.coalescing import Flight
from quaestor.store.memory import Resident

_MOST = 0.5
"""Largest share of its lifetime by which an entry may be refreshed early, whatever its cost."""


def early_by_ms(*, cost_ms: int, lifetime_ms: int, draw: float, beta: float) -> float:
    """Return how long before the end of its lifetime an entry is refreshed, in ms: never in its first half.

    draw: uniform in (0, 1].
    beta: larger than 1 is earlier.
    """
    return min(-cost_ms * beta * math.log(draw), _MOST * max(0, lifetime_ms))


class EarlyRefresh:
    """The refresh time of each entry, drawn once for each entry and process.

    beta: larger than 1 is earlier; 0: never early.
    uniform: draws from [0, 1).
    """

    def __init__(self, *, beta: float, uniform: Callable[[], float] = random.random) -> None:
        self._beta = beta
        self.uniform = uniform

    def settle(self, resident: Resident) -> Resident:
        """Draw the time after which a request in this process begins a refresh. The hit path reads only this time."""
        response = resident.response
        if self._beta and response.cost_ms:
            early_ms = early_by_ms(
                cost_ms=response.cost_ms,
                lifetime_ms=response.fresh_until_ms - response.stored_at_ms,
                draw=1.0 - self.uniform(),
                beta=self._beta,
            )
            resident.refresh_from(response.fresh_until_ms - math.ceil(early_ms))
        return resident

    def due(self, resident: Resident, now_ms: int) -> bool:
        """Whether a refresh is to begin now. True once; after that the entry is served as it is until its end."""
        if now_ms < resident.refresh_at_ms:
            return False
        resident.refresh_from(resident.response.fresh_until_ms)
        return now_ms < resident.refresh_at_ms


async def leads(
    flight: Flight,
    old: CachedResponse,
    *,
    usable: Callable[[CachedResponse], bool],
    keep: Callable[[CachedResponse], object],
) -> bool:
    """Whether this process is to refresh `old`. False if another process does so, while the shared store is away, or if a newer
    entry exists; that entry is then kept here too."""

    def newer(response: CachedResponse) -> bool:
        return response.stored_at_ms > old.stored_at_ms and usable(response)

    try:
        newer_entry = await flight.fetch(newer, wait=lambda: False)
    except StoreError:
        return False
    if newer_entry is not None:
        keep(newer_entry)
    return newer_entry is None and not flight.waited
