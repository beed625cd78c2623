"""Limits of a sketch's memory, and of the cleaning in one call. Beyond them the sketch names too many resources, never too
few."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.cache_sketch.counting import MAX_KEYS
from quaestor.errors import ConfigurationError

CLOCK_GRACE_MS = 2_000
"""How far the clocks of the processes that share a sketch may differ. Reported lifetimes are longer by this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a sketch's memory and of the work of one call. Defaults cost at most about 100 MB.

    max_reads: resources whose living copies are known one by one. Of further resources only the latest expiry is kept. Until
        then a write to an unknown resource counts as a write to a resource with a living copy.
    max_stale: keys in the filter. After one key more, everything is reported as stale until that key's copies are dead (the
        filter is of little use long before).
    sweep: most dead entries that an ordinary call removes.
    snapshot_sweep: most dead entries that one step of a snapshot removes.
    """

    max_reads: int = 500_000
    max_stale: int = 200_000
    sweep: int = 64
    snapshot_sweep: int = 200

    def __post_init__(self) -> None:
        if self.max_reads < 0 or not 0 <= self.max_stale <= MAX_KEYS:
            raise ConfigurationError(f"max_reads ({self.max_reads}) or max_stale ({self.max_stale}) is out of range")
        if self.sweep < 2 or not 1 <= self.snapshot_sweep <= 5_000:
            raise ConfigurationError(
                f"sweep ({self.sweep}) must be at least 2 to keep up, snapshot_sweep ({self.snapshot_sweep}) in 1..5000"
            )
