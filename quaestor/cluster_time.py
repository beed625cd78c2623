"""Cluster time: MongoDB's clock of writes, and the one number that stands for it here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.timestamp import Timestamp

from quaestor.model import Version


def version_of(timestamp: Timestamp) -> Version:
    """The version that stands for a cluster time: seconds in the upper 32 bits, the counter within a second in the lower."""
    return timestamp.time << 32 | timestamp.inc


def timestamp_of(version: Version) -> Timestamp:
    """The cluster time that a version came from."""
    return Timestamp(version >> 32, version & 0xFFFFFFFF)


def newest_of(reply: Mapping[str, Any]) -> Version:
    """The version of the newest write that MongoDB had acknowledged at a reply to `ping`; 0: the server does not say."""
    return version_of(reply["operationTime"]) if "operationTime" in reply else 0
