"""How soon the threads of a process take turns.

A woken thread asks for the interpreter. The running thread gives the interpreter up when it waits for something, or at the end of
the switch interval. Python's own interval is 5 ms. In a busy process an invalidation would wait so long at each of its steps.
There are dozens between the socket of the change stream and the registration.
"""

from __future__ import annotations

import sys
from typing import Final

_PYTHONS_OWN_S: Final = 0.005


def switch_within(interval_ms: float) -> None:
    """Shorten the switch interval of this process to this one (ms), where it is Python's own. 0: leave it."""
    if interval_ms and sys.getswitchinterval() == _PYTHONS_OWN_S:
        sys.setswitchinterval(interval_ms / 1_000)
