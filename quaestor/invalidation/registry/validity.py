"""Validity of registrations, checked by the read path on every hit: none is dead, and their cells are fresh."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from quaestor.invalidation.registry.freshness import Freshness

TOMBSTONE_MS: Final = 120_000
"""Time for which a dead registration is remembered: longer than any store look-up that began before its death."""
_MOST_TOMBSTONES: Final = 50_000
"""Tombstones forgotten in one call; the next call comes a second later."""


class Validity:
    """Dead registrations and the freshness of the others. Checks cost no I/O and no lock, and may come from any thread.

    dead: dead registrations by id, with the time at which the death was learnt; the oldest first.
    freshness: freshness of the query partitions, as last proved.
    """

    def __init__(self) -> None:
        self.dead: dict[str, int] = {}
        self.freshness = Freshness()
        self._all_until_ms = 0

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """See ports.QueryRegistry. The hit path usually compares only the first time at which a query partition lags."""
        # The check for the dead comes last: deaths are marked before the heartbeat that proves freshness is taken.
        return (
            now_ms <= self._all_until_ms or self.freshness.is_fresh(registration_ids, now_ms=now_ms)
        ) and self.dead.keys().isdisjoint(registration_ids)

    def any_dead(self, registration_ids: Iterable[str]) -> bool:
        """Whether one of these registrations is dead, fresh or not."""
        return not self.dead.keys().isdisjoint(registration_ids)

    def lagging(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """See ports.QueryRegistry."""
        return not self.freshness.is_fresh(registration_ids, now_ms=now_ms)

    def lagging_partitions(self, *, now_ms: int) -> list[int]:
        """Return the query partitions of a known grid that serve nothing from cache now."""
        return self.freshness.lagging(now_ms=now_ms)

    def serving(self, *, now_ms: int) -> bool:
        """See ports.QueryRegistry."""
        return now_ms <= self.freshness.any_until_ms

    def caught_up(self, *, now_ms: int) -> bool:
        """See ports.QueryRegistry."""
        return now_ms <= self._all_until_ms

    def prove(self, freshness: Freshness) -> None:
        """Replace the known freshness of the query partitions; Freshness() is none."""
        self.freshness = freshness
        self._all_until_ms = freshness.all_until_ms

    def kill(self, registration_ids: Iterable[str], *, now_ms: int) -> None:
        """Mark these registrations dead: the very next look-up refuses entries that rely on them."""
        for registration_id in registration_ids:
            self.dead[registration_id] = now_ms

    def revive(self, registration_id: str) -> None:
        """Remove the mark from a renewed registration."""
        self.dead.pop(registration_id, None)

    def keep_dead(self, registration_ids: Sequence[str], *, now_ms: int) -> None:
        """Prolong the tombstones of registrations whose effects are not settled yet."""
        for registration_id in registration_ids:
            self.dead.pop(registration_id, None)  # to the end: the oldest are forgotten from the front
            self.dead[registration_id] = now_ms

    def forget_dead(self, *, now_ms: int) -> None:
        """Forget tombstones that are old enough. O(forgotten tombstones)."""
        # In a single pass: a dictionary searches its first entry among all entries deleted before it.
        for registration_id, died_ms in list(islice(self.dead.items(), _MOST_TOMBSTONES)):
            if died_ms + TOMBSTONE_MS >= now_ms:
                break
            self.dead.pop(registration_id, None)
