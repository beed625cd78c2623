"""Limits of a matching node's content."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.invalidation.matching.eviction import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    """Limits of one node.

    max_images, max_image_bytes: largest number and total size of the kept writes.
    max_registrations, max_bytes: largest number of registrations, and bytes as memory_estimates.py estimates them. Subscribed
        queries may take half of the bytes.
    max_unindexed: largest number of predicates in a namespace that have no index, or an index that most records satisfy ($ne,
        $nin). Nearly every write tries them all.
    max_tried_per_s: predicates tried a second, in total. Beyond it, queries with less benefit are evicted (see eviction.py).
    grace_ms: age from which a query may be evicted.
    """

    max_registrations: int = 1_000_000
    max_unindexed: int = 5_000
    max_images: int = 200_000
    max_bytes: int = 2 * 1024**3
    max_image_bytes: int = 512 * 1024**2
    max_tried_per_s: int = 1_000_000
    grace_ms: int = 10_000

    @property
    def of_eviction(self) -> Limits:
        """Limits that evict queries."""
        return Limits(
            registrations=self.max_registrations,
            bytes=self.max_bytes,
            unindexed=self.max_unindexed,
            tried_per_s=self.max_tried_per_s,
            grace_s=self.grace_ms // 1_000,
        )
