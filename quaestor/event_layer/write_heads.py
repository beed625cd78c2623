"""Head of a write's payload: the fields before the record, read without decoding the payload (codec.py has the format)."""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from quaestor.event_layer.codec import FORMAT
from quaestor.model import Version

_HEAD: Final = re.compile(
    rb".{4}\x10v\0%c\0\0\0\x02t\0\x02\0\0\0i\0\x02k\0.{4}(?:insert|update|replace|delete)\0"
    rb"\x02ns\0.{4}([^\0]+)\0\x12ver\0(.{8}\x12w\0.{8})" % FORMAT,
    re.DOTALL,
)
_TIMES: Final = Struct("<q3xq")


def write_head(payload: bytes) -> tuple[str, Version, int] | None:
    """Return namespace, version and wall time (ms) of a write to one record; None: any other payload. O(1).

    A payload with this head may still be unreadable.
    """
    head = _HEAD.match(payload)
    if head is None:
        return None
    name, times = head.groups()
    try:
        namespace: str = name.decode()
    except UnicodeDecodeError:
        return None
    version, wall_ms = _TIMES.unpack(times)
    return namespace, version, wall_ms
