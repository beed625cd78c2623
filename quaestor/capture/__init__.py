"""Capture: what a request read from MongoDB, learned from the driver itself."""

from quaestor.capture.context import current, not_recording, recording, uncacheable
from quaestor.capture.listener import Capture
from quaestor.capture.recorder import Outcome, Recorder

__all__ = ["Capture", "Outcome", "Recorder", "current", "not_recording", "recording", "uncacheable"]
