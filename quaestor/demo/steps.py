"""Steps of the script with their outcomes: one JSON object a line, and whether every promise held."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

Latency = float | dict[str, float] | None


class Steps:
    """Record of the script: prints `{"step", "ok", "observed", "latency_ms"}` as each step is done.

    ok is null for a step that was skipped.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.held = True

    def record(self, step: str, ok: bool, observed: Any, latency_ms: Latency = None) -> None:
        """Print the outcome of a step."""
        self.held = self.held and ok
        self._print(step, ok, observed, latency_ms)

    def skip(self, step: str, why: str) -> None:
        """Print that a step was left out, and why."""
        self._print(step, None, f"skipped: {why}", None)

    def _print(self, step: str, ok: bool | None, observed: Any, latency_ms: Latency) -> None:
        line = {"step": step, "ok": ok, "observed": observed, "latency_ms": latency_ms}
        self._stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        self._stream.flush()


def percentiles_ms(latencies_ms: Sequence[float]) -> dict[str, float]:
    """p50 and p99 by the nearest rank."""
    ordered = sorted(latencies_ms)
    return {name: ordered[-(-len(ordered) * rank // 100) - 1] for name, rank in (("p50", 50), ("p99", 99))}
