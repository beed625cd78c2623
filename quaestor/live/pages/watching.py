"""Looks for new pages, shared by all followers of a log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import anyio.to_thread

from quaestor.live.pages.source import PageHead, PageSource

_MOST_AT_ONCE: Final = 100


class PageWatch:
    """Waits for new pages. However many clients follow a log, the source is asked once in `look_s` seconds. One event loop.

    nudge() shortens the wait in the process that makes the pages.
    """

    def __init__(self, source: PageSource, *, look_s: float = 1.0) -> None:
        self._source = source
        self.look_s = look_s
        self._looks: dict[str, tuple[float, asyncio.Future[int | None]]] = {}
        self._news: dict[str, asyncio.Event] = {}

    def nudge(self, name: str) -> None:
        """Note that a log has a new page."""
        self._looks.pop(name, None)
        if event := self._news.pop(name, None):
            event.set()

    async def news(self, name: str, after: int) -> AsyncIterator[PageHead | None]:
        """Yield the pages after a number, oldest first, as they appear; None after `look_s` seconds without a page.

        Raises as the source does.
        """
        while True:
            event = self._news.setdefault(name, asyncio.Event())
            newest = await self._newest(name)
            if newest is not None and newest > after:
                heads = await anyio.to_thread.run_sync(self._source.after, name, after, _MOST_AT_ONCE)
                for head in heads:
                    yield head
                    after = head.run
                continue
            try:
                async with asyncio.timeout(self.look_s):
                    await event.wait()
            except TimeoutError:
                yield None

    async def _newest(self, name: str) -> int | None:
        """Return the newest page, as of at most `look_s` seconds ago."""
        now_s = asyncio.get_running_loop().time()
        at_s, answer = self._looks.get(name, (-1.0, None))
        if answer is None or now_s - at_s >= self.look_s or (answer.done() and answer.exception() is not None):
            answer = asyncio.get_running_loop().create_future()
            self._looks[name] = now_s, answer
            try:
                answer.set_result(await anyio.to_thread.run_sync(self._source.newest, name))
            except Exception as error:
                self._forget(name)
                answer.set_exception(error)
                answer.exception()  # there may be no other follower
                raise
            finally:
                if not answer.done():  # this client has left: the others look again
                    self._looks.pop(name, None)
                    answer.set_result(None)
        return await asyncio.shield(answer)

    def _forget(self, name: str) -> None:
        self._looks.pop(name, None)
        self._news.pop(name, None)
