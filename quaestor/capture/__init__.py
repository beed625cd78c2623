"""Capture: the reads of a request from MongoDB, learned from the driver itself.

The listener needs the driver, and is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quaestor.capture.context import current, logging_writes, not_recording, recording, uncacheable
from quaestor.capture.recorder import ConstantsOfRun, Outcome, Recorder
from quaestor.capture.write_log import WriteLog

if TYPE_CHECKING:
    from quaestor.capture.listener import Capture

__all__ = [
    "Capture", "ConstantsOfRun", "Outcome", "Recorder", "WriteLog",
    "current", "logging_writes", "not_recording", "recording", "uncacheable",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "Capture":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quaestor.capture.listener import Capture

    return Capture
