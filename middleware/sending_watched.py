"""Large answers that a CDN may keep, watched until they were sent.

An entry that dies while it is being sent is purged too early: the CDN stores its copy after the purge. Therefore it is purged
once more when the answer has been sent. A small answer leaves the process at once, and is on its way only for as long as the
network takes. The repetition of every purge covers that time (setting `repurge_after_ms`).
"""

from __future__ import annotations

from typing import Final

from quaestor.middleware.context import ExchangeContext
from quaestor.model import CachedResponse
from quaestor.read_path.entries import dependent

WATCHED_FROM: Final = 256 * 1024
"""Size in bytes from which an answer is watched: a smaller body fits into the buffers of a connection."""
_PIECE: Final = 64 * 1024
"""Size in bytes of the pieces. A server takes the next piece after most of the earlier ones were sent, so the end is known."""


def watched(response: CachedResponse) -> bool:
    """Whether sending an answer may take long."""
    return len(response.body) >= WATCHED_FROM


async def send_watched(context: ExchangeContext, response: CachedResponse, body: bytes) -> None:
    """Send the body of an entry in pieces. If the entry has died before the last piece left, purge it again."""
    for start in range(0, len(body), _PIECE):
        await context.send({"type": "http.response.body", "body": body[start : start + _PIECE], "more_body": True})
    await context.send({"type": "http.response.body", "body": b"", "more_body": False})
    if not context.parts.read_path.usability.live(response.registrations):
        context.parts.purge_again(dependent(response, (context.target.url,)))
