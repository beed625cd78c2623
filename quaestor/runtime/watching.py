"""Watching of the database: begins with the first client that carries the capture, wherever and whenever that is made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from quaestor.capture.clients import WatchClient, watch_client
from quaestor.errors import ConfigurationError
from quaestor.runtime.parts import Parts
from quaestor.runtime.supervision.supervisor import KeptTask

_LOOK_EVERY_S: Final = 1.0
"""Time between two searches for clients that exist, and have not contacted a server yet."""
_PATIENT_LOOKS: Final = 10
"""Number of searches before a missing client is reported: it may be made after the start, or at first use."""


class Watching:
    """Watching of the MongoDB that the settings name, or else of the first captured client's. Until it begins nothing is cached.

    begin: called once after each start, with a separate client for the watching.
    """

    def __init__(self, parts: Parts, begin: Callable[[WatchClient], Awaitable[None]]) -> None:
        self._parts = parts
        self._begin = begin
        self._clients = parts.capture.clients
        self._named = parts.process.settings.mongo_url is not None
        self._begun = False
        self._complaints: set[str] = set()
        self._appeared = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: KeptTask | None = None

    async def start(self) -> None:
        """Begin to watch if the MongoDB is known, or else as soon as it is. Never raises ConfigurationError: that is reported."""
        self._begun = False
        if self._named:
            await self._look(last=True)
            return
        self._appeared = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._clients.follow(self._tell)
        await self._look(last=False)
        self._task = self._parts.process.supervisor.keep("watching", self._keep_looking)

    async def stop(self) -> None:
        """Stop the search for clients; watching that has not begun will not begin."""
        self._clients.follow(None)
        if self._task is not None:
            await self._task.aclose()

    def _tell(self) -> None:
        """Report a client that has appeared, from any thread."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._appeared.set)

    async def _keep_looking(self) -> None:
        looks = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._appeared.wait()
            self._appeared.clear()
            looks += 1
            await self._look(last=looks == _PATIENT_LOOKS)

    async def _look(self, *, last: bool) -> None:
        try:
            if not self._named:
                self._clients.look()
            if not self._begun and (self._clients.first is not None or last):
                client = watch_client(self._parts.capture, self._parts.process.settings)
                await self._begin(client)
                self._begun = True
        except ConfigurationError as error:
            self._complain("quaestor.not_watching", str(error))
        for sentence in self._clients.take_strangers():
            self._complain("quaestor.another_cluster", sentence)

    def _complain(self, event: str, sentence: str) -> None:
        if sentence not in self._complaints:
            self._complaints.add(sentence)
            self._parts.process.telemetry.failure("configuration", event, sentence)
