"""Client of live queries: one socket for any number of streams, opened again whenever it breaks off."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from quaestor.client.live.credentials import Credentials, present_token
from quaestor.client.live.cuts import ClientCuts
from quaestor.client.live.pauses import spread_pause_s
from quaestor.client.live.streams import EventStream, LiveStream, ResultStream, decoded, query_fields
from quaestor.errors import ConfigurationError, SubscriptionError
from quaestor.tasks import ended

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_SPREAD_S: Final = 1.0
"""Clients that lost one server come back spread over this time."""
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_WAITING: Final = 1_000
_CLOSE_S: Final = 2.0
_TOO_MANY: Final = 429
_OPTIONS: Final = frozenset({"pipeline", "collation", "collapse_ms", "poll_ms", "reconnects"})


class LiveClient:
    """Client of a `LiveQueries` endpoint: `async with LiveClient("wss://shop.example/live") as live:`.

    url: of the endpoint.
    token: credentials.
    headers: further fields of the handshake.
    ping_s: interval of the signs of life. The server answers how fresh the results are.
    binary: whether records come as BSON, which costs less processor time on both sides. A server without this form sends JSON.

    Raises ConfigurationError for arguments that cannot work.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Credentials = None,
        headers: Mapping[str, str] | None = None,
        ping_s: float = 10.0,
        binary: bool = False,
    ) -> None:
        if not url.startswith(("ws://", "wss://")):
            raise ConfigurationError(f"{url!r} is no URL of a WebSocket: write 'wss://shop.example/live'")
        if ping_s <= 0:
            raise ConfigurationError(f"ping_s={ping_s!r} must be positive")
        self._url = url
        self._token = token
        self._headers = dict(headers or {})
        self._ping_s = ping_s
        self._forms = ["quaestor.v1.bson", "quaestor.v1"] if binary else ["quaestor.v1"]
        self._streams: dict[str, LiveStream[Any]] = {}
        self._socket: ClientConnection | None = None
        self._retries: set[asyncio.Task[None]] = set()
        self._cut = False
        self._cuts = ClientCuts()
        self._mark: str | None = None
        """Id of the ping whose answer comes behind the last message without cuts."""
        self._failures = 0
        """Connections in a row without a message of the server."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="quaestor-live-client")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await ended([self._task])
        self._end_all(SubscriptionError("the client is closed", retryable=False))

    async def result_stream(
        self,
        collection: str,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - pymongo's name
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        skip: int = 0,
        limit: int = 0,
        **options: Any,
    ) -> ResultStream:
        """Follow a query by its whole results. Returns when the server has answered, however long there is none.

        options:
            pipeline: stages of an aggregation, in place of the filter, `sort`, `skip` and `limit`.
            collation: rules by which strings compare, such as {"locale": "de"}.
            collapse_ms: between two updates of one record, at least; negative (the default): off.
            poll_ms: between two readings of a result that is read again, at least; 0 (the default): as the server does.
            reconnects: connections after the first; negative (the default): any number. An error that may pass counts as one.

        Raises SubscriptionError if the server refuses the query.
        """
        _require_known("result_stream", options, _OPTIONS)
        named = {name: options[name] for name in ("pipeline", "collation") if name in options}
        fields = query_fields(collection, filter, sort, skip, limit, **named)
        fields |= {"collapse": options.get("collapse_ms", -1), "poll": options.get("poll_ms", 0), "delta": True}
        stream = ResultStream(fields, reconnects=options.get("reconnects", -1), ended=self._leave)
        await self._add(stream)
        return stream

    async def event_stream(
        self,
        collection: str,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - pymongo's name
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        skip: int = 0,
        limit: int = 0,
        match_types: Sequence[str] = ("all",),
        operations: Sequence[str] = ("any",),
        **options: Any,
    ) -> EventStream:
        """Follow a query by its events: every one after the return. Returns when the server has answered.

        match_types: of "all", "match", "add", "change", "changeIndex", "remove".
        operations: of "any", "insert", "update", "delete", "none".
        options: those of `result_stream`, and `initial` (default True) and `before_images`.

        Raises SubscriptionError if the server refuses the query.
        """
        _require_known("event_stream", options, _OPTIONS | {"initial", "before_images"})
        named = {name: options[name] for name in ("pipeline", "collation") if name in options}
        fields = query_fields(collection, filter, sort, skip, limit, **named) | {
            "matchTypes": list(match_types),
            "operations": list(operations),
            "initial": options.get("initial", True),
            "beforeImages": options.get("before_images", False),
            "collapse": options.get("collapse_ms", -1),
            "poll": options.get("poll_ms", 0),
        }
        reconnects = options.get("reconnects", -1)
        stream = EventStream(fields, waiting=_MOST_WAITING, reconnects=reconnects, ended=self._leave)
        await self._add(stream)
        return stream

    async def renew(self, token: str) -> None:
        """Send new credentials on the open socket. Equal rights resend nothing."""
        self._token = token
        await self._send({"type": "token", "token": token})

    async def cut(self, *, on: bool = True) -> None:
        """Let all streams of this client show their changes together, from one cluster time to the next.

        on: False: each stream shows its changes at once again.
        """
        if on is self._cut:
            return
        self._cut = on
        if on:
            self._mark = uuid.uuid4().hex
        else:
            self._cuts.turn(on=False)
        await self._send({"type": "cut", "on": on})
        if on:  # until the server reads `cut`, it sends messages that no cut follows
            await self._send({"type": "ping", "id": self._mark})

    async def _add(self, stream: LiveStream[Any]) -> None:
        if self._task is None or self._task.done():
            raise ConfigurationError("the client is not open: write `async with LiveClient(...) as live:`")
        self._streams[stream.id] = stream
        await self._send(stream.request())
        try:
            await stream.active()
        except BaseException:
            self._forget(stream)
            raise

    async def _leave(self, stream: LiveStream[Any]) -> None:
        if self._forget(stream):
            await self._send({"type": "unsubscribe", "id": stream.id})

    def _forget(self, stream: LiveStream[Any]) -> bool:
        """Forget a stream that ends. Return whether it was there."""
        known = self._streams.pop(stream.id, None) is not None
        self._cuts.leave(stream)
        return known

    async def _send(self, message: Mapping[str, Any]) -> None:
        """Send a message, if the socket is open. The next socket begins with all streams anyway."""
        from websockets.exceptions import ConnectionClosed

        if self._socket is not None:
            with suppress(ConnectionClosed):
                await self._socket.send(json.dumps(message))

    async def _run(self) -> None:
        try:
            from websockets.asyncio.client import connect
        except ImportError as error:
            self._end_all(SubscriptionError("live queries need `pip install quaestor[client]`", retryable=False))
            raise ConfigurationError("live queries need `pip install quaestor[client]`") from error
        while True:
            reason = ""
            self._failures += 1
            try:
                token = await self._present_token()
                async with connect(
                    self._url,
                    subprotocols=self._forms,  # type: ignore[arg-type]  # a NewType of str
                    additional_headers=self._headers,
                    compression=None,
                    max_size=_MOST_BYTES,
                    close_timeout=_CLOSE_S,
                ) as socket:
                    await self._use(socket, token)
            except _TokenError as error:
                reason = str(error)
            except Exception as error:
                if not _may_pass(error):
                    self._end_all(SubscriptionError(f"{self._url} refuses the connection: {error}", retryable=False))
                    return
                reason = f"{self._url}: {error}"
            finally:
                self._socket = None
            for stream in [stream for stream in self._streams.values() if not stream.lost(reason)]:
                self._forget(stream)
            # A server that answered may have been lost by all its clients at once.
            await asyncio.sleep(spread_pause_s(self._failures) if self._failures else random.uniform(0, _SPREAD_S))

    async def _present_token(self) -> str | None:
        try:
            return await present_token(self._token)
        except Exception as error:
            raise _TokenError(f"the function `token` failed: {error!r}") from error

    async def _use(self, socket: ClientConnection, token: str | None) -> None:
        """Serve the streams over one socket, until it breaks off.

        token: credentials of the socket.
        """
        from websockets.exceptions import ConnectionClosed

        pinging = asyncio.create_task(self._ping(socket), name="quaestor-live-ping")
        try:
            if not callable(self._token):
                token = self._token  # may have been renewed during the handshake
            if token is not None:
                await socket.send(json.dumps({"type": "token", "token": token}))
            cut = self._cut
            if cut:
                await socket.send(json.dumps({"type": "cut", "on": True}))
            self._socket, self._mark = socket, None
            self._cuts.reopen(on=self._cut)
            streams = list(self._streams.values())
            for stream in streams:
                self._cuts.ask(stream)
            if self._cut is not cut:  # the program switched it while the socket was not known
                await self._send({"type": "cut", "on": self._cut})
            for stream in streams:
                if stream.id in self._streams:
                    await socket.send(json.dumps(stream.request()))
            async for text in socket:
                await self._take(decoded(text))
        except ConnectionClosed:
            return
        finally:
            await ended([pinging, *self._retries])  # the next socket begins with all streams

    async def _take(self, message: Mapping[str, Any]) -> None:
        self._failures = 0
        kind = message["type"]
        if kind == "cut":
            self._cuts.cut()
        elif kind == "pong" and self._cut and message.get("id") == self._mark is not None:
            self._cuts.turn(on=True)
        stream = self._streams.get(message.get("id") or "")
        if stream is None:
            return
        pause_s = stream.pause_before_retry_s(message)
        if pause_s is not None:
            self._cuts.ask(stream)
            retry = asyncio.create_task(self._subscribe_again(stream, pause_s), name="quaestor-live-retry")
            self._retries.add(retry)
            retry.add_done_callback(self._retries.discard)
        elif kind == "error":
            self._forget(stream)
            stream.take(message)
        elif self._cuts.take(stream, message):
            await self._subscribe_again(stream)

    async def _subscribe_again(self, stream: LiveStream[Any], pause_s: float = 0) -> None:
        await asyncio.sleep(pause_s)
        if stream.id in self._streams:
            await self._send({"type": "unsubscribe", "id": stream.id})
            await self._send(stream.request())

    async def _ping(self, socket: ClientConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        with suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(self._ping_s)
                await socket.send('{"type":"ping"}')

    def _end_all(self, error: SubscriptionError) -> None:
        for stream in self._streams.values():
            stream.fail(error)
        self._streams.clear()
        self._cuts = ClientCuts()


class _TokenError(Exception):
    """Error of the program's function that gives the token."""


def _may_pass(error: Exception) -> bool:
    """Whether the same handshake may succeed later: the network failed, or the endpoint has no place at present."""
    from websockets.exceptions import InvalidMessage, InvalidStatus

    if isinstance(error, InvalidStatus):
        return error.response.status_code == _TOO_MANY or error.response.status_code >= 500
    return isinstance(error, OSError) or (isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError))


def _require_known(function: str, options: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = options.keys() - known
    if unknown:
        raise ConfigurationError(f"{function}() knows no option {sorted(unknown)[0]!r}")
