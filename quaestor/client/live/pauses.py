"""Pauses of the clients of live queries after failures: random and growing, so that many clients do not come back together."""

from __future__ import annotations

import random
from typing import Final

from quaestor.tasks import pause_after

UNAVAILABLE: Final = frozenset({500, 502, 503, 504})
"""Statuses of a server that may answer the same request later."""
_FIRST_S: Final = 0.2
_LONGEST_S: Final = 10.0


def spread_pause_s(failures: int) -> float:
    """Return a random pause in seconds after this many failures in a row.

    The pause is at most 0.2 s after the first failure. Each further failure doubles this bound, up to 10 s.
    """
    return random.uniform(0, pause_after(failures, first_s=_FIRST_S, longest_s=_LONGEST_S))
