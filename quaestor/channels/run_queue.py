"""Queue of runs: which channel runs next where more are due than may run at once (V6).

Runs begin by priority, then earliest deadline first. The deadline of a run is the end of its period. Slow channels have places of
their own, so other channels do not wait behind them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from quaestor.channels.statements.model import Priority
from quaestor.continuous.schedule.stretching import LARGEST

RESISTANCE: Final = {Priority.HIGH: LARGEST, Priority.NORMAL: 4, Priority.LOW: 1}
"""Divisor of the factor by which load stretches periods, see `Schedule.put`. The largest factor leaves high priority as it is."""
_ORDER: Final = tuple(Priority)
_MINUTE_S: Final = 60.0
_WEIGHT: Final = 0.3
"""Weight of the newest run in the cost of a channel."""


class Turn(NamedTuple):
    """Turn of a run. deadline: instant at which its period ends."""

    priority: Priority
    deadline: int

    @property
    def order(self) -> tuple[int, int]:
        """Place among others: the smallest comes first."""
        return _ORDER.index(self.priority), self.deadline


class Cost:
    """Cost of a channel's runs in seconds, known from its past runs: newer ones count more.

    period_s: a channel is slow if a run takes more than half of it. 0: it has no single length, and a minute is taken.
    """

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.run_s = 0.0
        self._has_run = False

    @property
    def length_s(self) -> float:
        """Length of the period, see above."""
        return self.period_s or _MINUTE_S

    @property
    def patience_s(self) -> float:
        """How long a run may take before it counts as slow."""
        return self.length_s / 2

    @property
    def is_slow(self) -> bool:
        """Whether the next run is expected to be slow."""
        return self.run_s > self.patience_s

    def note(self, took_s: float) -> None:
        """Note how long a run took."""
        self.run_s = took_s if not self._has_run else (1 - _WEIGHT) * self.run_s + _WEIGHT * took_s
        self._has_run = True


class RunQueue:
    """Places for runs. Owned by one event loop.

    at_once: most runs at once that are not slow. Half as many slow ones run beside them.
    """

    def __init__(self, at_once: int) -> None:
        self._places = _Places(at_once)
        self._slow = _Places(max(1, at_once // 2))

    @property
    def waiting(self) -> int:
        """Number of runs that wait for a place."""
        return self._places.waiting + self._slow.waiting

    @asynccontextmanager
    async def place(self, turn: Turn, cost: Cost) -> AsyncIterator[None]:
        """Wait for a place, and hold it inside the block.

        A run of low priority and an expected slow one, unless its priority is high, take a place for slow ones. A run that proves
        slow gives its place to the next, and goes on beside the slow ones.
        """
        is_slow = turn.priority is Priority.LOW or (cost.is_slow and turn.priority is not Priority.HIGH)
        held = self._slow if is_slow else self._places
        await held.take(turn)

        def prove_slow() -> None:
            nonlocal held
            held.give()
            held = self._slow
            held.overdraw()

        timer = None if is_slow else asyncio.get_running_loop().call_later(cost.patience_s, prove_slow)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            held.give()


class _Places:
    """Places of one kind, given in turn."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queue: list[tuple[tuple[int, int], int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        return sum(not future.done() for *_, future in self._queue)

    async def take(self, turn: Turn) -> None:
        if self._free > 0:
            self._free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (turn.order, next(self._numbers), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give()
            raise

    def overdraw(self) -> None:
        """Take a place that may not be there: the next ones wait until it is given back."""
        self._free -= 1

    def give(self) -> None:
        """Give a place back, to the first that waits."""
        self._free += 1
        while self._free > 0 and self._queue:
            *_, future = heapq.heappop(self._queue)
            if not future.done():
                self._free -= 1
                future.set_result(None)
