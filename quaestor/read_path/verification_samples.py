"""Samples of stored answers, kept for verification. A small share of the hits decides which sample is verified, within a budget.
Serving a hit does none of this work: once a second the hits are evaluated."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

MOST_SAMPLES = 512
SAMPLE_EVERY_MS = 50
"""Shortest time between two samples: each one makes its miss dearer."""

Again = Callable[[], None]
"""Begins the verification of one sample. Returns at once."""


class Samples:
    """Samples of one process, by the registrations of their entries. Use from one event loop.

    share: of the hits that lead to a verification, 0..1.
    per_second: verifications at most; 0: none.
    uniform: draws from [0, 1).
    """

    def __init__(self, *, share: float, per_second: float, uniform: Callable[[], float] = random.random) -> None:
        self._share = share
        self._per_second = per_second
        self._uniform = uniform
        self._again: dict[tuple[str, ...], Again] = {}
        self._allowance = 0.0
        self._next_ms = 0

    def __len__(self) -> int:
        return len(self._again)

    def wanted(self, now_ms: int) -> bool:
        """Whether to keep a sample of the answer that is about to be stored."""
        if not (self._share and self._per_second) or now_ms < self._next_ms <= now_ms + SAMPLE_EVERY_MS:
            return False
        self._next_ms = now_ms + SAMPLE_EVERY_MS
        return True

    def keep(self, registrations: tuple[str, ...], again: Again) -> None:
        """Keep a sample; if there are too many, it replaces a random one."""
        if len(self._again) >= MOST_SAMPLES and registrations not in self._again:
            names = list(self._again)
            del self._again[names[int(self._uniform() * len(names))]]
        self._again[registrations] = again

    def drop(self, registrations: tuple[str, ...]) -> None:
        """Forget a sample, if there is one: its entry is gone."""
        self._again.pop(registrations, None)

    def choose(self, served: Iterable[tuple[tuple[str, ...], int]]) -> list[Again]:
        """Return the samples to verify now. Called once a second.

        served: registrations of each entry that was served in this second, with its hits.
        """
        self._allowance = min(self._allowance + self._per_second, max(1.0, self._per_second))
        if not self._again or not self._share:
            return []
        drawn = []
        for registrations, reads in served:
            again = self._again.get(registrations)
            if again is not None:
                draw = self._uniform()
                if draw < 1 - (1 - self._share) ** reads:
                    drawn.append((self._uniform(), again))
        drawn.sort(key=lambda draw: draw[0])
        chosen = drawn[: math.floor(self._allowance)]
        self._allowance -= len(chosen)
        return [again for _, again in chosen]
