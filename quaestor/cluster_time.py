"""Cluster time: MongoDB's clock of writes, and the one number that stands for it here."""

from __future__ import annotations

from bson.timestamp import Timestamp

from quaestor.model import Version


def version_of(timestamp: Timestamp) -> Version:
    """A cluster time as a version."""
    return timestamp.time << 32 | timestamp.inc


def timestamp_of(version: Version) -> Timestamp:
    """A version as the cluster time it came from."""
    return Timestamp(version >> 32, version & 0xFFFFFFFF)
