"""What its writer had seen, kept beside a value or an entry: `{"life": <life>, "seen": {<stream>: [<ms>, <sequence>]}}`, as BSON.

On one server what was written later is lost first. Servers of a cluster lose their last moments each for itself, so what is still
there may rest on what is not: a resume position on writes that it says are appended, an activation on a registration.
Whoever takes the one looks whether the other is there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import bson
from bson.errors import BSONError

from quaestor.event_layer.redis_requests import Position

_YOUNGER_THAN_MS: Final = 600_000
"""What is older a replica has, or it is no candidate (`cluster-replica-validity-factor`)."""
_MOST: Final = 1_000
_LARGEST_BYTES: Final = 256 * 1024


def encode(life: str, seen: Mapping[str, Position]) -> bytes:
    """The youngest positions. O(n)."""
    since_ms = time.time_ns() // 1_000_000 - _YOUNGER_THAN_MS
    young = {stream: list(position) for stream, position in seen.items() if position[0] >= since_ms}
    if len(young) > _MOST:
        young = dict(sorted(young.items(), key=lambda one: one[1])[-_MOST:])
    return bson.encode({"life": life, "seen": young})


def decode(data: bytes, life: str | None) -> dict[str, Position]:
    """Empty if it is from another life of the data, of which nothing can be asked any more, or is none."""
    if len(data) > _LARGEST_BYTES:
        return {}
    try:
        fields = bson.decode(data)
        if fields["life"] != life:
            return {}
        return {str(stream): (int(at_ms), int(sequence)) for stream, (at_ms, sequence) in fields["seen"].items()}
    except (BSONError, KeyError, TypeError, ValueError, AttributeError):
        return {}
