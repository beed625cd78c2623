"""End of a stream: an hour after its beginning, or when the server stops."""

from __future__ import annotations

import asyncio
from typing import Final

from quaestor.live.followed_routes import server_stops

LONGEST_S: Final = 3_600.0
"""Longest time of a stream. The client then connects again, and its credentials are judged anew."""


class StreamEnd:
    """End of one stream that begins now."""

    def __init__(self) -> None:
        self._until_s = asyncio.get_running_loop().time() + LONGEST_S

    @property
    def is_reached(self) -> bool:
        """Whether the stream has to end."""
        return server_stops() or asyncio.get_running_loop().time() > self._until_s
