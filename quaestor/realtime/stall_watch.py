"""Watch over the results that a process follows: subscribers are notified of a stall and of its end.

A look at all results takes some milliseconds for thousands of them. The watch therefore looks at one part after the other, and
between two parts its caller gives the lock to tasks that take events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quaestor.observability.telemetry import Telemetry
from quaestor.realtime.local_subscription import LocalSubscription

_EVERY_MS: Final = 100
_MORE_MS: Final = 0.1
"""Each result adds this to the time between two looks, because a look takes some microseconds for each. 3,000 results: 400 ms."""


class StallWatch:
    """Watch over results. Its caller holds their lock.

    bound_ms: a result that gets no further for longer stands still.
    """

    def __init__(self, telemetry: Telemetry, *, bound_ms: int) -> None:
        self._telemetry = telemetry
        self._bound_ms = bound_ms
        self._looked_ms = 0
        self._stalled = 0

    def is_due(self, results: int, now_ms: int) -> bool:
        """Whether the last look was long enough ago. The next one is then noted as begun.

        results: number of followed results.
        """
        every_ms = min(_EVERY_MS + _MORE_MS * results, self._bound_ms / 2)
        if 0 <= now_ms - self._looked_ms < every_ms:
            return False
        self._looked_ms = now_ms
        return True

    def look(self, subscriptions: Iterable[LocalSubscription], now_ms: int) -> int:
        """Look whether some results have got further, and tell their subscribers. Return how many stand still."""
        stalled = 0
        for local in subscriptions:
            shared = local.shared
            if shared.advances(now_ms) or not shared.begun:
                continue
            notice = shared.watch(now_ms, bound_ms=self._bound_ms)
            if notice is not None:
                local.push([notice])
            stalled += shared.stalled is not None
        return stalled

    def report(self, stalled: int) -> None:
        """Report how many results stand still, after a look at all."""
        if stalled and not self._stalled:
            reason = f"followed results stand still for more than {self._bound_ms} ms"
            self._telemetry.failure("grid", "subscriptions.stalled", reason, queries=stalled)
        self._stalled = stalled
        self._telemetry.subscriptions.stalled.set(stalled)
