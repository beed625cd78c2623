"""Capture: what a request read from MongoDB, learned from the driver itself."""

from quaestor.capture.context import current, logging_writes, not_recording, recording, uncacheable
from quaestor.capture.listener import Capture
from quaestor.capture.recorder import ConstantsOfRun, Outcome, Recorder
from quaestor.capture.write_log import WriteLog

__all__ = [
    "Capture", "ConstantsOfRun", "Outcome", "Recorder", "WriteLog",
    "current", "logging_writes", "not_recording", "recording", "uncacheable",
]  # fmt: skip
