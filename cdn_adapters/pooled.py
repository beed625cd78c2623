"""Place behind a pool of HTTP connections: the part that all such places share. Their protocols differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import httpx

from quaestor.cdn_adapters.answers import Answer, Delivered
from quaestor.cdn_adapters.capabilities import Capabilities
from quaestor.cdn_adapters.place import Target, cheapest_targets
from quaestor.cdn_adapters.tag_field import tag_headers


class PooledPlace(ABC):
    """Place with a pool of connections: tags and targets by its capabilities, batches sent over the pool."""

    capabilities: Capabilities

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """See Place: the tags, in the field that the capabilities name."""
        return tag_headers(self.capabilities.tag_field, tags)

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        """See Place: of the cheapest kind by the capabilities."""
        return cheapest_targets(self.capabilities, tags=tags, urls=urls)

    @abstractmethod
    async def send(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> Answer:
        """Purge a batch on these connections: see Connection."""

    async def completed(self, client: httpx.AsyncClient, ticket: str) -> Answer:
        """Return the outcome of an accepted batch: see Connection. Not called for a place that purges before it answers."""
        return Delivered()


class Singles:
    """Connection to a place without rates: one HTTP client for each request under way. Implements Connection.

    The client that was used last is used next. A client's pool looks at each of its connections at each request: with eight
    connections in one pool a purge costs half as much again.

    new: makes a client.
    closed: closes the clients.
    """

    def __init__(self, place: PooledPlace, new: Callable[[], httpx.AsyncClient], closed: AsyncExitStack) -> None:
        self._place = place
        self._new = new
        self._closed = closed
        self._free: list[httpx.AsyncClient] = []

    async def open(self) -> None:
        """Make the first client, so that no purge waits for the import of its libraries."""
        self._free.append(await self._closed.enter_async_context(self._new()))

    async def send(self, targets: Sequence[Target]) -> Answer:
        """See Connection."""
        client = self._free.pop() if self._free else await self._closed.enter_async_context(self._new())
        try:
            return await self._place.send(client, targets)
        finally:
            self._free.append(client)

    async def completed(self, ticket: str) -> Answer:
        """See Connection. Not called for a place that purges before it answers."""
        return Delivered()


class Pooled:
    """Connection to a place: its pool. Implements Connection."""

    def __init__(self, place: PooledPlace, client: httpx.AsyncClient) -> None:
        self._place = place
        self._client = client

    async def send(self, targets: Sequence[Target]) -> Answer:
        """See Connection."""
        return await self._place.send(self._client, targets)

    async def completed(self, ticket: str) -> Answer:
        """See Connection."""
        return await self._place.completed(self._client, ticket)
