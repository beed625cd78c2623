"""Watch over the results that a process follows: subscribers are notified of a stall and of its end.

A look at all results takes 20 milliseconds for 10,000 of them, and tasks that take events wait for the same lock. The watch
therefore goes round: with each step of its caller some results have their turn, as many as the time since then asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from quaestor.observability.telemetry import Telemetry
from quaestor.realtime.local_subscription import LocalSubscription

_EVERY_MS: Final = 100
_MORE_MS: Final = 0.1
"""Each result adds this to the time of a round, because a look takes some microseconds for each. 3,000 results: 400 ms."""
_PART: Final = 500
"""Results that are looked at in one go: about a millisecond."""


class StallWatch:
    """Watch over results. Not thread-safe.

    bound_ms: a result that gets no further for longer stands still.
    """

    def __init__(self, telemetry: Telemetry, *, bound_ms: int) -> None:
        self._telemetry = telemetry
        self._bound_ms = bound_ms
        self._round: Sequence[LocalSubscription] = ()
        self._looked_at = 0
        self._begun_ms = 0
        self._stalled = 0
        self._reported = 0

    def parts(self, results: Collection[LocalSubscription], now_ms: int) -> Iterator[Sequence[LocalSubscription]]:
        """Return the results whose turn has come, in parts for one `look` each. The caller holds the lock of `results`.

        results: all followed results. A new round begins with them.
        """
        passed_ms = now_ms - self._begun_ms
        round_ms = min(_EVERY_MS + _MORE_MS * len(self._round), self._bound_ms / 2)
        if not 0 <= passed_ms < round_ms and self._looked_at == len(self._round):
            self._report()
            self._round, self._looked_at, self._begun_ms, passed_ms = list(results), 0, now_ms, 0
        return self._due(passed_ms / round_ms if passed_ms >= 0 else 1.0)

    def look(self, subscriptions: Iterable[LocalSubscription], now_ms: int) -> None:
        """Look whether some results have got further, and tell their subscribers. The caller holds their lock."""
        for local in subscriptions:
            shared = local.shared
            if shared.advances(now_ms) or not shared.begun:
                continue
            notice = shared.watch(now_ms, bound_ms=self._bound_ms)
            if notice is not None:
                local.push([notice])
            self._stalled += shared.stalled is not None

    def _due(self, share: float) -> Iterator[Sequence[LocalSubscription]]:
        """Iterate over the rest of this share of the round."""
        end = min(len(self._round), int(share * len(self._round)) + 1)
        while self._looked_at < end:
            part = self._round[self._looked_at : min(end, self._looked_at + _PART)]
            self._looked_at += len(part)
            yield part

    def _report(self) -> None:
        """Report how many results stand still, after a round."""
        stalled, self._stalled = self._stalled, 0
        if stalled and not self._reported:
            reason = f"followed results stand still for more than {self._bound_ms} ms"
            self._telemetry.failure("grid", "subscriptions.stalled", reason, queries=stalled)
        self._reported = stalled
        self._telemetry.subscriptions.stalled.set(stalled)
