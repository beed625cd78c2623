"""Encodings of one followed answer: each event and each patch is made once for all followers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quaestor.live.answers import FollowedAnswer

BeginPatch = Callable[[FollowedAnswer, FollowedAnswer], asyncio.Future[bytes | None]]
Encode = Callable[[FollowedAnswer], tuple[bytes, str]]


class Encodings:
    """Last event and last patch of one followed answer."""

    def __init__(self) -> None:
        self._event: tuple[FollowedAnswer, bytes, str] | None = None
        self._patch: tuple[FollowedAnswer, FollowedAnswer, asyncio.Future[bytes | None]] | None = None

    def event(self, answer: FollowedAnswer, encode: Encode) -> tuple[bytes, str]:
        """Event of an answer, and its kind."""
        if self._event is None or self._event[0] is not answer:
            self._event = (answer, *encode(answer))
        return self._event[1:]

    async def patch(self, old: FollowedAnswer, new: FollowedAnswer, begin: BeginPatch) -> bytes | None:
        """Patch between two answers, made once for all followers that hold the same answer."""
        known = self._patch
        if known is None or known[0] is not old or known[1] is not new:
            known = self._patch = (old, new, begin(old, new))
        return await asyncio.shield(known[2])
