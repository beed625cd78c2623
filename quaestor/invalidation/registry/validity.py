"""Validity of registrations, as the read path asks for it on every hit: none is dead, and what guards them is fresh."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from quaestor.invalidation.registry.freshness import Freshness

TOMBSTONE_MS: Final = 120_000
"""How long a dead registration is remembered: longer than any store look-up that began before its death can last."""
_MOST_TOMBSTONES: Final = 50_000
"""Forgotten at once; a second later comes the next time."""


class Validity:
    """Dead registrations and the freshness of the rest. Questions cost no I/O and no lock, and may come from any thread.

    dead: registrations of which nothing may be served, by id, with when that was learnt; the oldest first.
    freshness: of the query partitions, as last proved.
    """

    def __init__(self) -> None:
        self.dead: dict[str, int] = {}
        self.freshness = Freshness()
        self._all_until_ms = 0

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """See ports.QueryRegistry. The hit path looks no further than at the first moment at which a query partition lags, if
        that has not come."""
        # The dead last: what a fresh heartbeat proves was marked before it was taken.
        return (
            now_ms <= self._all_until_ms or self.freshness.is_fresh(registration_ids, now_ms=now_ms)
        ) and self.dead.keys().isdisjoint(registration_ids)

    def any_dead(self, registration_ids: Iterable[str]) -> bool:
        """Whether one of these is dead, fresh or not."""
        return not self.dead.keys().isdisjoint(registration_ids)

    def lagging(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """See ports.QueryRegistry."""
        return not self.freshness.is_fresh(registration_ids, now_ms=now_ms)

    def lagging_partitions(self, *, now_ms: int) -> list[int]:
        """The query partitions nothing of which is served from cache now; of a grid that was heard of."""
        return self.freshness.lagging(now_ms=now_ms)

    def serving(self, *, now_ms: int) -> bool:
        """See ports.QueryRegistry."""
        return now_ms <= self.freshness.any_until_ms

    def caught_up(self, *, now_ms: int) -> bool:
        """See ports.QueryRegistry."""
        return now_ms <= self._all_until_ms

    def prove(self, freshness: Freshness) -> None:
        """Replace what is known of the query partitions; Freshness() is nothing."""
        self.freshness = freshness
        self._all_until_ms = freshness.all_until_ms

    def kill(self, registration_ids: Iterable[str], *, now_ms: int) -> None:
        """Mark these dead: the very next look-up refuses what relies on them."""
        for registration_id in registration_ids:
            self.dead[registration_id] = now_ms

    def revive(self, registration_id: str) -> None:
        """Take the mark from one that was renewed."""
        self.dead.pop(registration_id, None)

    def keep_dead(self, registration_ids: Sequence[str], *, now_ms: int) -> None:
        """Prolong the tombstones of registrations whose effects are not settled yet."""
        for registration_id in registration_ids:
            self.dead.pop(registration_id, None)  # to the end: the oldest are forgotten from the front
            self.dead[registration_id] = now_ms

    def forget_dead(self, *, now_ms: int) -> None:
        """Forget tombstones that are old enough. O(those)."""
        # In one go: a dictionary looks for its first entry among all that were deleted before it.
        for registration_id, died_ms in list(islice(self.dead.items(), _MOST_TOMBSTONES)):
            if died_ms + TOMBSTONE_MS >= now_ms:
                break
            self.dead.pop(registration_id, None)
