"""Messages that ingest of a new generation puts into query pipelines, as BSON: `{"v": 1, "t": <type>, ...}`.

| pipeline | type | fields |
|---|---|---|
| query, old generation | `f` fence | g: the generation that takes over |
| query, new generation | `t` taken over | r: the registration's payload, as: the version as of which it holds |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import bson

from quaestor.errors import EventLayerError
from quaestor.event_layer.codec import FORMAT, Fields, decode_payload, decode_query_event, type_of
from quaestor.model import Registration, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """End of a query pipeline: cells of an older generation activate no registration behind it.

    generation: generation that takes over.
    """

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """Registration that cells of an older generation may have activated. Its `since` is already that of the takeover."""

    registration: Registration


def concerns_resizing(payload: bytes) -> bool:
    """Whether an entry of the query pipeline is a resize message, without decoding it."""
    letter = type_of(payload)
    return letter is not None and letter in b"ft"


def encode_fence(fence: Fence) -> bytes:
    """Return the payload of a fence, for an old query pipeline."""
    return bson.encode({"v": FORMAT, "t": "f", "g": fence.generation})


def encode_taken_over(payload: bytes, as_of: Version) -> bytes:
    """Return the payload of a registration taken over, for a new query pipeline.

    payload: payload of the registration, unread.
    as_of: version as of which it holds.
    """
    return bson.encode({"v": FORMAT, "t": "t", "as": as_of, "r": payload})


def decode(payload: bytes) -> Fence | TakenOver:
    """Return the message in a payload. Raises EventLayerError if it is neither."""
    return decode_payload(payload, _message)


def _message(fields: Fields) -> Fence | TakenOver:
    if fields["t"] == "f":
        return Fence(generation=int(fields["g"]))
    registration = decode_query_event(fields["r"])
    if not isinstance(registration, Registration):
        raise EventLayerError("the entry taken over is no registration", retryable=False)
    return TakenOver(registration=replace(registration, since=max(registration.since, int(fields["as"]))))
