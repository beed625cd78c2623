"""Capture: the reads of a request from MongoDB, learned from the driver itself.

The listener needs the driver, and is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quaestor.capture.context import current, logging_writes, not_recording, noting_writes, recording, uncacheable
from quaestor.capture.recorder import ConstantsOfRun, Outcome, Recorder
from quaestor.capture.write_log import WriteLog
from quaestor.first_use import names_at_first_use

if TYPE_CHECKING:
    from quaestor.capture.listener import Capture

__all__ = [
    "Capture", "ConstantsOfRun", "Outcome", "Recorder", "WriteLog",
    "current", "logging_writes", "not_recording", "noting_writes", "recording", "uncacheable",
]  # fmt: skip


__getattr__ = names_at_first_use(globals(), {"quaestor.capture.listener": "Capture"})
