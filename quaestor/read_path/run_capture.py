"""Capture of the reads of one handler run."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.capture.context import Recording, recording
from quaestor.capture.seen_constants import SeenConstants


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCapture:
    """Settings of the capture of handler runs.

    capture: the one whose clients handlers read with; None: any.
    seen_constants: constants of queries that are no part of the present time.
    clock_window_ms: see LifetimeSettings.
    """

    capture: object | None
    seen_constants: SeenConstants
    clock_window_ms: int

    def recording(self) -> Recording:
        """Return a block that records the reads of one run."""
        return recording(clock_window_ms=self.clock_window_ms, capture=self.capture)
