"""Progress of the effects: when all invalidations notified up to some moment are gone from stores and CDNs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class EffectsProgress:
    """Progress of one process's effects, in the order in which they began. Use from one event loop."""

    def __init__(self) -> None:
        self._begun = 0
        self._claimed = 0
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._finishing: set[asyncio.Future[None]] = set()
        self._held: dict[str, asyncio.Future[None]] = {}

    def begin_anew(self) -> None:
        """Forget the effects that had begun: this process carries them out no more."""
        self._begun = self._claimed = 0
        self._waiting.clear()
        self._finishing.clear()
        self._held.clear()

    def began(self, registrations: int) -> None:
        """Note that this many registrations begin to wait for their claim."""
        self._begun += registrations

    def claimed(self, registrations: int) -> None:
        """Note that the next registrations, in order, are claimed, and that their further effects are announced."""
        self._claimed += registrations
        for waiting, number in self._waiting.items():
            if number <= self._claimed and not waiting.done():
                waiting.set_result(None)

    def all_claimed(self) -> None:
        """Note that no registration waits for its claim, whatever the outcome."""
        self.claimed(self._begun - self._claimed)

    def finishing(self) -> Callable[[], None]:
        """Announce an eviction or a purge; return a function to call when it is done."""
        finished = asyncio.get_running_loop().create_future()
        self._finishing.add(finished)

        def done() -> None:
            self._finishing.discard(finished)
            if not finished.done():
                finished.set_result(None)

        return done

    def held(self, name: str) -> None:
        """Note that a registration is held until its recheck has a verdict."""
        if name not in self._held:
            self._held[name] = asyncio.get_running_loop().create_future()

    def settled(self, name: str) -> None:
        """Note that a held registration has its verdict; its effects, if any, have begun."""
        future = self._held.pop(name, None)
        if future is not None and not future.done():
            future.set_result(None)

    async def caught_up(self) -> None:
        """Return when all effects begun until now are evicted and purged once. Has no bound of its own."""
        if self._held:
            await asyncio.wait(set(self._held.values()))
        if self._claimed < self._begun:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[waiting] = self._begun
            try:
                await waiting
            finally:
                del self._waiting[waiting]
        if self._finishing:
            await asyncio.wait(set(self._finishing))
