"""What ingest of a new generation puts into query pipelines, as BSON: `{"v": 1, "t": <type>, ...}`.

| pipeline | type | fields |
|---|---|---|
| query, old generation | `f` fence | g: the generation that takes over |
| query, new generation | `t` taken over | r: the registration's payload, as: it holds as of this version |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import bson
from bson.errors import BSONError

from quaestor.errors import EventLayerError
from quaestor.invalidation.event_layer.codec import FORMAT, decode_query_event
from quaestor.model import Registration, Version

_TYPE_AT: Final = slice(11, 19)
"""Where the type stands in a payload, with the head of its field."""
_HEAD: Final = b"\x02t\x00\x02\x00\x00\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """No registration behind it is activated by cells of an older generation than this."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """A registration that cells of an older generation may have activated. Its `since` is already that of the take-over."""

    registration: Registration


def concerns_resizing(payload: bytes) -> bool:
    """Whether an entry of the query pipeline is one of ours, without decoding it."""
    head = payload[_TYPE_AT]
    return head[:7] == _HEAD and head[7:8] in b"ft"


def encode_fence(fence: Fence) -> bytes:
    return bson.encode({"v": FORMAT, "t": "f", "g": fence.generation})


def encode_taken_over(payload: bytes, as_of: Version) -> bytes:
    """payload: of a registration, not looked at."""
    return bson.encode({"v": FORMAT, "t": "t", "as": as_of, "r": payload})


def decode(payload: bytes) -> Fence | TakenOver:
    """Raises EventLayerError if it is neither."""
    try:
        fields = bson.decode(payload)
        if fields["v"] != FORMAT:
            raise EventLayerError(f"a payload has format {fields['v']!r}, this is {FORMAT}", retryable=False)
        if fields["t"] == "f":
            return Fence(generation=int(fields["g"]))
        registration = decode_query_event(fields["r"])
        if not isinstance(registration, Registration):
            raise EventLayerError("what was taken over is no registration", retryable=False)
        return TakenOver(registration=replace(registration, since=max(registration.since, int(fields["as"]))))
    except (BSONError, KeyError, TypeError, ValueError) as error:
        raise EventLayerError(f"a payload of {len(payload)} bytes is unreadable: {error!r}", retryable=False) from error
