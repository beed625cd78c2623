"""Writes that a node keeps for registrations that arrive after them: the writes taken in order, and early ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quaestor.invalidation.matching.retention import Retained, Retention
from quaestor.model import Version

_EARLY_MS: Final = 10_000
_MOST_EARLY: Final = 20_000
_MOST_EARLY_BYTES: Final = 64 * 1024**2


class RetainedWrites:
    """Writes kept for replay.

    in_order: writes that came in cluster-time order.
    early: writes that came ahead of their turn; each comes again in order. Any of them may be missing.
    """

    __slots__ = ("early", "in_order")

    def __init__(self, in_order: Retention) -> None:
        self.in_order = in_order
        self.early = Retention(retention_ms=_EARLY_MS, max_images=_MOST_EARLY, max_bytes=_MOST_EARLY_BYTES)

    def newer_than(self, since: Version, namespaces: Sequence[str], *, watermark: Version) -> list[Retained]:
        """Return the writes to these namespaces after `since`, first those in order.

        Contributors follow the writes in order: an early write older than the watermark would set them back.
        """
        retained = self.in_order.newer_than(since, namespaces)
        if self.early:
            retained += self.early.newer_than(max(since, watermark - 1), namespaces)
        return retained

    def interrupted(self, version: Version) -> None:
        """Forget all writes: those before `version` are unknown."""
        self.in_order.interrupted(version)
        self.early.interrupted(version)

    def trim(self, *, now_ms: int) -> None:
        """Drop writes older than the retention."""
        self.in_order.trim(now_ms=now_ms)
        self.early.trim(now_ms=now_ms)
