"""Program of one prediction of a canary from a recorded trace, in a process of its own with lower priority than the app.

Reads one JSON object, writes one line: `{"result": ...}` or `{"problem": ...}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quaestor.dashboard.simulating import MOST_RECORDS, answer, newest
from quaestor.simulation.canary_prediction import predicted_of
from quaestor.ttl.parameters import decoded
from quaestor.ttl.trace_format import read


def prediction(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Predictions of one canary, by figure. Raises ConfigurationError."""
    trace = read(Path(request["trace"]))
    predicted = predicted_of(
        newest(trace.records, MOST_RECORDS), now=decoded(request["now"]), chosen=decoded(request["chosen"]),
        share=request["share"], delta_ms=request["delta_ms"], started_ms=trace.started_ms,
    )  # fmt: skip
    yield {"result": {name: list(interval) for name, interval in predicted.items()}}


if __name__ == "__main__":
    answer(prediction)
