"""Time as an argument: wall-clock milliseconds, injected so that tests own the clock."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""A clock: returns milliseconds since the epoch."""


def system_clock() -> int:
    """Wall-clock milliseconds. Hosts of one deployment are expected to agree within the staleness bound (NTP)."""
    return time.time_ns() // 1_000_000
