"""Failures of the listeners that the driver calls: the driver prints what a listener raises, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from quaestor.capture.context import heard
from quaestor.model import Uncacheable


class ListenerFailures:
    """Failures of the listeners of one capture. Use from any thread.

    report: receives each failure; None: nobody does.
    """

    def __init__(self) -> None:
        self.report: Callable[[Exception], object] | None = None

    def note(self, error: Exception) -> None:
        """Report a failure. Raises nothing."""
        report = self.report
        if report is not None:
            with suppress(Exception):
                report(error)


def distrust_request(error: Exception) -> None:
    """Make the answer of the request that this code runs for uncacheable, and take it for one that writes. Raises nothing."""
    with suppress(Exception):
        recorder, writes = heard()
        if recorder is not None:
            recorder.refuse(Uncacheable.UNREADABLE, f"a listener failed: {type(error).__name__}")
        if writes is not None:
            writes.attempt()
