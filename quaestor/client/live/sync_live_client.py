"""Client of live queries for programs without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from quaestor.client.live.live_client import LiveClient
from quaestor.client.live.streams import LiveEvent, LiveGap, LiveStream

Item = TypeVar("Item")


class SyncLiveStream(Generic[Item], Iterator[Item]):
    """Stream of one subscription, to be iterated in a thread. `with` or close() ends the subscription."""

    def __init__(self, stream: LiveStream[Item], portal: BlockingPortal) -> None:
        self._stream = stream
        self._portal = portal

    def close(self) -> None:
        """End the subscription."""
        self._portal.call(self._stream.aclose)

    def __next__(self) -> Item:
        try:
            return self._portal.call(self._stream.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncLiveClient:
    """Client of a `LiveQueries` endpoint: `with SyncLiveClient("wss://shop.example/live") as live:`. See LiveClient."""

    def __init__(self, url: str, **options: Any) -> None:
        self._client = LiveClient(url, **options)
        self._open = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._portal = opening.enter_context(start_blocking_portal())
            running: AbstractContextManager[Any] = self._portal.wrap_async_context_manager(self._client)
            opening.enter_context(running)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def result_stream(self, collection: str, *arguments: Any, **options: Any) -> SyncLiveStream[list[Any]]:
        """Follow a query by its whole results. See LiveClient.result_stream."""
        portal = self._opened()
        stream = portal.call(lambda: self._client.result_stream(collection, *arguments, **options))
        return SyncLiveStream(stream, portal)

    def event_stream(self, collection: str, *arguments: Any, **options: Any) -> SyncLiveStream[LiveEvent | LiveGap]:
        """Follow a query by its events. See LiveClient.event_stream."""
        portal = self._opened()
        stream = portal.call(lambda: self._client.event_stream(collection, *arguments, **options))
        return SyncLiveStream(stream, portal)

    def renew(self, token: str) -> None:
        """Send new credentials on the open socket. See LiveClient.renew."""
        self._opened().call(self._client.renew, token)

    def cut(self, *, on: bool = True) -> None:
        """Let all streams of this client show their changes together. See LiveClient.cut."""
        self._opened().call(lambda: self._client.cut(on=on))

    def _opened(self) -> BlockingPortal:
        assert self._portal is not None, "write `with SyncLiveClient(...) as live:`"
        return self._portal
