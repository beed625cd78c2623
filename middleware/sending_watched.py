"""Large answers that a CDN may keep, watched until they were sent.

What dies while it is being sent is purged, and the CDN stores it afterwards: the purge was too early. So it is purged once more
when the answer has been sent. A small answer is handed over to the system at once, and is on its way for as long as the network
takes: that is what the repetition of every purge is for (setting `repurge_after_ms`).
"""

from __future__ import annotations

from typing import Final

from quaestor.middleware.context import ExchangeContext
from quaestor.model import CachedResponse
from quaestor.read_path.entries import dependent

WATCHED_FROM: Final = 256 * 1024
"""Bytes of a body from which on it is watched: what is smaller fits into the buffers of a connection."""
_PIECE: Final = 64 * 1024
"""A server waits before it takes a piece while what it has of the answer is not sent, so that the end is the end."""


def watched(response: CachedResponse) -> bool:
    """Whether an answer may be on its way for long."""
    return len(response.body) >= WATCHED_FROM


async def send_watched(context: ExchangeContext, response: CachedResponse, body: bytes) -> None:
    """Send the body of an entry in pieces; if the entry has died before the last one left, have it purged again."""
    for start in range(0, len(body), _PIECE):
        await context.send({"type": "http.response.body", "body": body[start : start + _PIECE], "more_body": True})
    await context.send({"type": "http.response.body", "body": b"", "more_body": False})
    if not context.read_path.usability.live(response.registrations):
        context.purge_again(dependent(response, (context.target.url,)))
