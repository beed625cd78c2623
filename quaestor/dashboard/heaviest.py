"""Heaviest results: the results that have taken most of the handlers' time lately, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from quaestor.observability.hooks import AnswerKept

HALF_LIFE_MS: Final = 600_000
MOST_RESULTS: Final = 512
"""Most results in memory. When there are more, the lighter half is removed."""

Why = Callable[[AnswerKept], dict[str, float | str]]
"""Function that returns the numbers behind the lifetime of a result's copies."""


@dataclass(slots=True)
class _Result:
    """Result that was made by a handler.

    cost_ms: decayed sum of its handlers' times, as of at_ms.
    times: how often the result was made.
    """

    kept: AnswerKept
    at_ms: int
    cost_ms: float = 0.0
    times: int = 0

    def cost(self, now_ms: int) -> float:
        """Decayed sum of its handlers' times as of now."""
        return float(self.cost_ms * 0.5 ** (max(0, now_ms - self.at_ms) / HALF_LIFE_MS))


class HeaviestResults:
    """Heaviest results of one process, as an observer of AnswerKept. Use from one event loop. O(1) a call, amortised."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._results: dict[str, _Result] = {}

    def __call__(self, kept: AnswerKept) -> None:
        """Count one result that was made."""
        now_ms = self._clock()
        result = self._results.get(kept.key)
        if result is None:
            result = self._results[kept.key] = _Result(kept, now_ms)
        result.cost_ms, result.at_ms, result.kept = result.cost(now_ms) + kept.cost_ms, now_ms, kept
        result.times += 1
        if len(self._results) > MOST_RESULTS:
            heaviest = sorted(self._results.items(), key=lambda item: -item[1].cost(now_ms))
            self._results = dict(heaviest[: MOST_RESULTS // 2])

    def top(self, number: int, why: Why) -> list[dict[str, Any]]:
        """Heaviest results, with their dependencies and the reasons for their copies' lifetimes."""
        now_ms = self._clock()
        heaviest = sorted(self._results.values(), key=lambda result: -result.cost(now_ms))[:number]
        return [
            {
                "key": result.kept.key[:512], "kind": result.kept.kind,
                "cost_ms": round(result.cost(now_ms), 1), "times": result.times,
                "last_ms": result.kept.cost_ms, "given_ms": result.kept.given_ms, "depends": result.kept.depends()[:1_024],
                "why": why(result.kept),
            }
            for result in heaviest
        ]  # fmt: skip
