"""A client of event streams: it reads events off a real socket, as a browser does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx


@dataclass(slots=True)
class Event:
    """One event, or one comment."""

    name: str = "message"
    data: str = ""
    id: str = ""
    retry_ms: int = 0
    comment: str | None = None


@dataclass(slots=True)
class Client:
    """One open stream."""

    response: httpx.Response
    lines: AsyncIterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = self.response.aiter_lines()

    async def any_event(self) -> Event | None:
        """The next event or comment; None: the stream has ended."""
        event, data = Event(), []
        async with asyncio.timeout(20):
            async for line in self.lines:
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if not line:
                    event.data = "\n".join(data)
                    return event
                if line.startswith(":"):
                    event.comment = value
                elif name == "data":
                    data.append(value)
                elif name == "event":
                    event.name = value
                elif name == "id":
                    event.id = value
                elif name == "retry":
                    event.retry_ms = int(value)
        return None

    async def rest(self) -> None:
        """Read until the stream ends."""
        while await self.any_event():
            pass

    async def event(self) -> Event | None:
        """The next event that a page would see; None: the stream has ended."""
        while (event := await self.any_event()) is not None:
            if event.data or event.id:
                return event
        return None


@asynccontextmanager
async def following(client: httpx.AsyncClient, path: str, **headers: str) -> AsyncIterator[Client]:
    fields = {"accept": "text/event-stream", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with client.stream("GET", path, headers=fields) as response:
        yield Client(response)
