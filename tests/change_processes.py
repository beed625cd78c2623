"""Processes of changes whose truth is known, and the fills that an estimator gives lifetimes in them."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator

from quaestor.ports import LifetimeEstimator
from quaestor.ttl.calibration import Outcome

START_MS = 1_700_000_000_000
Process = Callable[[random.Random], dict[str, Iterator[float]]]
"""The times (ms) at which each query's result changes."""


def poisson(dice: random.Random, rate_hz: float) -> Iterator[float]:
    """Changes at a steady rate."""
    at_ms = float(START_MS)
    while True:
        at_ms += dice.expovariate(rate_hz) * 1_000
        yield at_ms


def bursts(dice: random.Random, *, bursts_hz: float, size: int, within_ms: float) -> Iterator[float]:
    """Changes in bursts: several within a moment, then none for a long time."""
    for begin_ms in poisson(dice, bursts_hz):
        yield from sorted(begin_ms + dice.uniform(0, within_ms) for _ in range(size))


def cycle(dice: random.Random, *, busiest_hz: float, quietest_hz: float, period_ms: float) -> Iterator[float]:
    """Changes at a rate that follows the time of day: a step down for the second half of each period."""
    for at_ms in poisson(dice, busiest_hz):
        rate_hz = busiest_hz if at_ms % period_ms < period_ms / 2 else quietest_hz
        if dice.random() < rate_hz / busiest_hz:
            yield at_ms


def one_poisson(dice: random.Random) -> dict[str, Iterator[float]]:
    return {"q": poisson(dice, 0.1)}


def bursty(dice: random.Random) -> dict[str, Iterator[float]]:
    return {f"q{i}": bursts(dice, bursts_hz=0.02, size=5, within_ms=2_000) for i in range(20)}


def cyclic(dice: random.Random) -> dict[str, Iterator[float]]:
    return {f"q{i}": cycle(dice, busiest_hz=0.5, quietest_hz=0.02, period_ms=600_000) for i in range(20)}


def fast_cycle(dice: random.Random) -> dict[str, Iterator[float]]:
    return {f"q{i}": cycle(dice, busiest_hz=0.5, quietest_hz=0.02, period_ms=120_000) for i in range(20)}


def zipf(dice: random.Random) -> dict[str, Iterator[float]]:
    return {f"q{i}": poisson(dice, 1.0 / i) for i in range(1, 201)}


def fills(
    estimator: LifetimeEstimator, process: Process, *, count: int, dice: random.Random, reread_ms: float = 500.0
) -> list[tuple[float, Outcome]]:
    """Read each query at random after each change, and see what comes of its lifetime: (when it was given, outcome).

    Every result is watched until it changes, as by our own store; nothing of it is censored.
    """
    changes = process(dice)
    events: list[tuple[float, str, bool]] = [
        (START_MS + dice.expovariate(1 / reread_ms), name, True) for name in changes
    ]
    heapq.heapify(events)
    outcomes: list[tuple[float, Outcome]] = []
    while len(outcomes) < count:
        now_ms, name, read = heapq.heappop(events)
        if not read:
            estimator.observe_invalidation(name, now_ms=math.ceil(now_ms))
            heapq.heappush(events, (now_ms + dice.expovariate(1 / reread_ms), name, True))
            continue
        at_ms = math.ceil(now_ms)
        change_ms = next(change for change in changes[name] if change > now_ms)
        given_ms = estimator.estimate_ms([name], write_rate_hz=0.0, now_ms=at_ms, kind="c")
        estimator.observe_read([name], now_ms=at_ms, given_ms=given_ms, kind="c")
        lived_ms = max(0, math.ceil(change_ms) - at_ms)
        outcomes.append((now_ms, Outcome(given_ms=given_ms, lived_ms=lived_ms, changed=True)))
        heapq.heappush(events, (change_ms, name, False))
    return outcomes
