"""Traces that commands read. A trace may still be recorded; the command reports it."""

from __future__ import annotations

import sys
from pathlib import Path

from quaestor.ttl.trace_format import Trace, read


def read_trace(path: Path) -> Trace:
    """Read a trace, and report on standard error if its recording goes on. Raises ConfigurationError."""
    trace = read(path)
    if not trace.ended:
        print(
            f"{path} has no last line: an application still records it, or was killed; "
            f"its first {len(trace.records)} records are taken",
            file=sys.stderr,
        )
    return trace
