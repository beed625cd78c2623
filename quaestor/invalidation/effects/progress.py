"""Progress of the effects of invalidations: when everything that was notified up to some moment is gone from stores and CDNs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class EffectsProgress:
    """Progress of one process's effects, in the order in which they were begun. Use from one event loop."""

    def __init__(self) -> None:
        self._begun = 0
        self._claimed = 0
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._finishing: set[asyncio.Future[None]] = set()
        self._held: dict[str, asyncio.Future[None]] = {}

    def begin_anew(self) -> None:
        """Forget what was begun: nobody works it off any more."""
        self._begun = self._claimed = 0
        self._waiting.clear()
        self._finishing.clear()
        self._held.clear()

    def began(self, registrations: int) -> None:
        """Note that so many more registrations are to be worked off."""
        self._begun += registrations

    def claimed(self, registrations: int) -> None:
        """Note that the next so many, in order, are claimed; what else there is to do for them has been announced."""
        self._claimed += registrations
        for waiting, number in self._waiting.items():
            if number <= self._claimed and not waiting.done():
                waiting.set_result(None)

    def all_claimed(self) -> None:
        """Note that nothing waits to be claimed, whatever became of it."""
        self.claimed(self._begun - self._claimed)

    def finishing(self) -> Callable[[], None]:
        """Announce an eviction or a purge; to be called when it is done."""
        finished = asyncio.get_running_loop().create_future()
        self._finishing.add(finished)

        def done() -> None:
            self._finishing.discard(finished)
            if not finished.done():
                finished.set_result(None)

        return done

    def held(self, name: str) -> None:
        """Note that it is being found out whether there is anything to do for this registration."""
        if name not in self._held:
            self._held[name] = asyncio.get_running_loop().create_future()

    def settled(self, name: str) -> None:
        """Note that it is known; what there is to do has begun."""
        future = self._held.pop(name, None)
        if future is not None and not future.done():
            future.set_result(None)

    async def caught_up(self) -> None:
        """Returns when what has begun until now is evicted, and purged for the first time. Waits for as long as that takes."""
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
