"""Clocks: how far another machine's clock is from this one's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quaestor.clock import Clock, system_clock
from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn

_SAMPLES: Final = 5
_SYNCHRONISE: Final = "sudo timedatectl set-ntp true"


def compared(
    whose: str, ask: Callable[[], float], *, staleness_bound_ms: int, clock: Clock = system_clock
) -> Diagnosis:
    """Diagnosis of a clock that is read a few times.

    ask: returns its time in ms since the epoch. May raise.
    staleness_bound_ms: bound of freshness, which is judged by clocks. Beyond it nothing is served, near it little is.
    """
    skew_ms, uncertain_ms = min((_sample(ask, clock) for _ in range(_SAMPLES)), key=lambda sample: sample[1])
    subject = f"clock of {whose}"
    beyond_ms = max(0.0, abs(skew_ms) - uncertain_ms)
    place = f"{abs(skew_ms):.0f} ms {'ahead of' if skew_ms > 0 else 'behind'} this machine's (give or take {uncertain_ms:.0f} ms)"
    if beyond_ms > staleness_bound_ms / 2:
        return mend(subject, f"{place}; answers count as fresh for {staleness_bound_ms} ms only", _SYNCHRONISE)
    if beyond_ms > staleness_bound_ms / 8:
        return warn(subject, f"{place}; of {staleness_bound_ms} ms for which answers count as fresh", _SYNCHRONISE)
    return ok(subject, place)


def _sample(ask: Callable[[], float], clock: Clock) -> tuple[float, float]:
    before_ms = clock()
    told_ms = ask()
    after_ms = clock()
    return told_ms - (before_ms + after_ms) / 2, max(1.0, (after_ms - before_ms) / 2)
