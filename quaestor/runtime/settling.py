"""Settling: waiting until the writes that MongoDB has acknowledged have taken effect in this process, for tests and scripts."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

import anyio.to_thread
from pymongo.errors import PyMongoError

from quaestor.capture.clients import WatchClient
from quaestor.cluster_time import newest_of
from quaestor.errors import ConfigurationError, DatabaseError, DependencyError
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import Version
from quaestor.runtime.parts import Parts

_LOOK_EVERY_S: Final = 0.01


class Settling:
    """Waiting for the effects of writes. Between end() and the next begin() nothing is cached, and nothing is waited for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: WatchClient | None = None

    def begin(self) -> None:
        """Note the event loop that all parts use from now on."""
        self._loop = asyncio.get_running_loop()

    def watch(self, client: WatchClient) -> None:
        """Note the client of the database that is watched from now on."""
        self._client = client

    def end(self) -> None:
        """Forget event loop and client."""
        self._loop = self._client = None

    async def settled(self, *, within_s: float) -> None:
        """See Quaestor.settled."""
        loop = self._loop
        if loop is None:
            return
        if loop is asyncio.get_running_loop():
            await self._settled(within_s)
        else:
            await asyncio.wrap_future(self._elsewhere(loop, within_s))

    def settled_sync(self, *, within_s: float) -> None:
        """See Quaestor.settled_sync."""
        loop = self._loop
        if loop is None:
            return
        running: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            running = asyncio.get_running_loop()
        if running is loop:
            raise ConfigurationError(
                "settled_sync() would stop the event loop that it waits for; write `await quaestor.settled()` here"
            )
        self._elsewhere(loop, within_s).result()

    def _elsewhere(self, loop: asyncio.AbstractEventLoop, within_s: float) -> Future[None]:
        if not loop.is_running():
            raise ConfigurationError(
                "the event loop that Quaestor was started on does not run now: use `with TestClient(app) as client:`, "
                "or one event loop for the app's lifespan and its tests"
            )
        return asyncio.run_coroutine_threadsafe(self._settled(within_s), loop)

    async def _settled(self, within_s: float) -> None:
        parts, client = self._parts, self._client
        if client is None or not isinstance(parts.registry, Registry):
            return
        try:
            async with asyncio.timeout(within_s):
                version = await anyio.to_thread.run_sync(_newest, client)
                parts.read_path.own_writes.expect()
                await parts.registry.progress.until(version)
                await parts.effects.progress.caught_up()
                while not parts.registry.serving(now_ms=parts.process.clock()):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            raise DependencyError(
                f"writes to MongoDB have not taken effect within {within_s:g} s; `quaestor doctor` names the part that is late"
            ) from None


def _newest(client: WatchClient) -> Version:
    """Version of the newest write that MongoDB has acknowledged; 0: this server has none. Raises DatabaseError."""
    try:
        reply = client.admin.command("ping")
    except PyMongoError as error:
        raise DatabaseError(
            f"MongoDB did not answer, so nobody knows which writes it has acknowledged: {error}"
        ) from error
    return newest_of(reply)
