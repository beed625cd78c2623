"""Result files as the table of figures takes them, and numbers as it writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks import harness

Result = Mapping[str, Any]
Row = tuple[str, str, str]
"""The measured quantity and its condition; the figure; beside it the baseline and the unfavourable twin."""


class FiguresError(Exception):
    """Figures that cannot be made: a result file is missing, or nobody could measure it again."""


def result(name: str, *, run: str = "") -> Result:
    """One result file. Raises FiguresError if there is none or its tree was not a commit's.

    run: the benchmark that writes it, with its options, if they are not in the name.
    """
    path = harness.RESULTS / f"{name}.json"
    if not path.exists():
        raise FiguresError(f"{path.name} is missing; run: python -m benchmarks.{run or name}")
    document: Result = json.loads(path.read_text())
    if str(document["commit"]).endswith("+changes"):
        raise FiguresError(
            f"{path.name} was measured on a changed tree ({document['commit'][:12]}); commit, then run: "
            f"python -m benchmarks.{run or name}"
        )
    return document


def count(value: float) -> str:
    """A number with three digits that matter: 28,400; 462; 4.15."""
    if value >= 1_000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def spread(of: Result) -> str:
    """Median and 99th percentile of latencies."""
    return f"{count(of['p50_ms'])} / {count(of['p99_ms'])} ms"


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.0f} %"
