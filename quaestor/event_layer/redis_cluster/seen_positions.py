"""Seen positions, kept beside a value or an entry: the entries that its writer had read.

As BSON: `{"life": <data epoch>, "seen": {<stream>: [<ms>, <sequence>]}}`.

On one server the latest writes are lost first. Each server of a cluster loses its own last moments, so a surviving value
may rest on lost entries. Examples: a resume position on the writes that it reports as appended, an activation on a
registration. A reader of the value therefore checks that these entries exist.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import bson
from bson.errors import BSONError

from quaestor.event_layer.redis_requests import Position

_YOUNGER_THAN_MS: Final = 600_000
"""Age of entries that every replica has, or it is no candidate (`cluster-replica-validity-factor`)."""
_MOST: Final = 1_000
_LARGEST_BYTES: Final = 256 * 1024


def encode(epoch: str, seen: Mapping[str, Position]) -> bytes:
    """Return the field that holds the youngest positions. O(n).

    epoch: the data epoch in which they were seen.
    """
    since_ms = time.time_ns() // 1_000_000 - _YOUNGER_THAN_MS
    young = {stream: list(position) for stream, position in seen.items() if position[0] >= since_ms}
    if len(young) > _MOST:
        young = dict(sorted(young.items(), key=lambda seen: seen[1])[-_MOST:])
    return bson.encode({"life": epoch, "seen": young})


def decode(data: bytes, epoch: str | None) -> dict[str, Position]:
    """Return the positions in such a field.

    Empty for a field of another epoch, whose entries are gone, and for any other data.
    """
    if len(data) > _LARGEST_BYTES:
        return {}
    try:
        fields = bson.decode(data)
        if fields["life"] != epoch:
            return {}
        return {str(stream): (int(at_ms), int(sequence)) for stream, (at_ms, sequence) in fields["seen"].items()}
    except (BSONError, KeyError, TypeError, ValueError, AttributeError):
        return {}
