"""Endpoint for live queries: `app.include_router(LiveQueries(db, quaestor=quaestor, access=...))`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError
from quaestor.live.followed_routes import server_stops
from quaestor.live.followers import Places
from quaestor.live.websocket.connection import TRY_LATER, SocketClosedError, SocketConnection, SocketContext
from quaestor.live.websocket.forms import FORMS, RecordForm
from quaestor.live.websocket.groups import Engine, QueryGroups
from quaestor.live.websocket.http.polls import LONGEST_WAIT_MS
from quaestor.live.websocket.http.resource import LiveResource
from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.principals import WhoSubscribes
from quaestor.live.websocket.rights_watch import RightsWatch
from quaestor.read_path.validation import none_match_fails, strong_etag
from quaestor.rest.access import Access
from quaestor.rest.database import Connection
from quaestor.tasks import in_parts

_LOOK_EVERY_S: Final = 1.0
_CLOSE_S: Final = 1.0
"""Time in which a client takes the end of its socket. Then the server ends the connection."""
_JUDGED_AT_ONCE: Final = 64
"""Clients whose rights are looked at together. An application often asks its database for each."""
_DEFAULT_FORM: Final = next(iter(FORMS))
_REFUSALS: Final = {
    "origin": ("origin", 403, "pages of this origin may not open the socket; name it in LiveQueries(origins=[...])"),
    "process": ("connections", 503, "too many sockets; try again later"),
    "client": ("address", 429, "too many sockets from this address"),
}
"""Label of the metric, status and text of a refused handshake, by `Places.refusal` or the origin."""


class LiveQueries(APIRouter):
    """Endpoint for live queries of one database, over WebSocket and HTTP, to be included in any FastAPI application.

    db: a pymongo database, asynchronous or not.
    quaestor: the application's Quaestor.
    path: of the endpoint. The client modules for pages are at the same path with `.js` and `.http.js` behind it, a query over
        HTTP at `{path}/{bucket}`.
    access: rules of the collections, as of a QuaestorRouter. By default no client may read anything.
    principal: the principal of a socket, as of a QuaestorRouter; None: every client is anonymous. The function receives a
        request with the fields of the handshake, and with `Authorization: Bearer <token>` for a token that a message brings.
        A `Grant` carries the end of the credentials too.
    origins: pages that may open a socket, such as "https://shop.example", besides those of the endpoint's own host. "*": all.
    limits: of sockets, subscriptions and messages.
    rights_in: collections of the same database from which `principal` takes rights, such as "members". A write to them has the
        rights of all sockets looked at anew, as `recheck()` does. The process holds their records: for small collections.

    Protocol: docs/live_queries.md, docs/live_http.md. Raises ConfigurationError for arguments that cannot work.
    """

    def __init__(
        self,
        db: Any,
        *,
        quaestor: Engine,
        path: str = "/live",
        access: Access | None = None,
        principal: WhoSubscribes | None = None,
        origins: Sequence[str] = (),
        limits: SocketLimits | None = None,
        rights_in: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if not hasattr(quaestor, "subscribe"):
            raise ConfigurationError(f"quaestor is a {type(quaestor).__name__}; write quaestor=Quaestor()")
        if isinstance(origins, str) or not all(origin == "*" or urlsplit(origin).netloc for origin in origins):
            raise ConfigurationError(f"origins={origins!r}: a list of origins such as 'https://shop.example', or ['*']")
        if isinstance(rights_in, str):
            raise ConfigurationError(f"rights_in={rights_in!r}: a list of names of collections")
        limits = limits or SocketLimits()
        self._endpoint = LiveEndpoint(
            Connection(db, time_ms=limits.query.time_ms),
            quaestor=quaestor,
            access=access or Access(),
            who=principal,
            origins=frozenset(origin.rstrip("/").lower() for origin in origins),
            limits=limits,
            rights_in=tuple(rights_in),
        )
        self.routes.append(WebSocketRoute(path, self._endpoint))
        for ending, folder in (("js", ""), ("http.js", "http")):
            self.routes.append(
                Route(f"{path}.{ending}", ClientModule(folder), methods=["GET"], name=f"live-client-{ending}")
            )
        self.routes.append(Route(f"{path}/{{bucket}}", self._endpoint.http, methods=["GET"], name="live-query"))

    async def recheck(self) -> None:
        """Look anew at the rights of every connected client: after a change of roles that no write to the records shows.

        Subscriptions with other rights receive a new result; those without rights end with an error.
        """
        await self._endpoint.recheck()


class ClientModule:
    """ASGI application that answers with a client for browsers, as clients/js builds it.

    folder: of the client's file, beside this module.
    """

    def __init__(self, folder: str) -> None:
        self._body = Path(__file__).parent.joinpath(folder, "client.js").read_bytes()
        self._etag = strong_etag(self._body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = {"etag": self._etag.decode(), "cache-control": "no-cache", "x-content-type-options": "nosniff"}
        held = [value for name, value in scope["headers"] if name == b"if-none-match"]
        if held and none_match_fails(b", ".join(held), self._etag):
            response = Response(status_code=304, headers=headers)
        else:
            response = Response(self._body, media_type="text/javascript", headers=headers)
        await response(scope, receive, send)


class LiveEndpoint:
    """ASGI application that serves the sockets.

    places: of sockets, streams and requests.
    http: the same queries over HTTP.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        quaestor: Engine,
        access: Access,
        who: WhoSubscribes | None,
        origins: frozenset[str],
        limits: SocketLimits,
        rights_in: tuple[str, ...] = (),
        clock: Clock = system_clock,
    ) -> None:
        self._quaestor = quaestor
        self._connection = connection
        self._access = access
        self._who = who
        self._origins = origins
        self._limits = limits
        self._rights_in = rights_in
        self._clock = clock
        self._sockets: set[SocketConnection] = set()
        self.places = Places(most=limits.connections, most_of_one=limits.connections_an_address)
        self.http = LiveResource(self)
        self._context: SocketContext | None = None
        self._looking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket."""
        websocket = WebSocket(scope, receive, send)
        address = websocket.client.host if websocket.client else ""
        refusal = self.places.refusal(address) if self._admits(websocket) else "origin"
        if refusal:
            reason, status, text = _REFUSALS[refusal]
            self._quaestor.telemetry.live.rejected.labels(reason).inc()
            await websocket.send_denial_response(PlainTextResponse(text, status_code=status))
            return
        give_back = self.places.take(address)
        try:
            await self._accept(websocket, send)
        finally:
            give_back()

    async def recheck(self, users: Set[str] | None = None) -> None:
        """See LiveQueries.recheck.

        users: only the clients of these users; None: all.
        """
        at_once = anyio.CapacityLimiter(_JUDGED_AT_ONCE)

        async def recheck(socket: SocketConnection) -> None:
            async with at_once:
                await socket.recheck()

        async with anyio.create_task_group() as tasks:  # a slow answer about one client does not delay the others
            for socket in list(self._sockets):
                if users is None or socket.user in users:
                    tasks.start_soon(recheck, socket)

    @property
    def wait_ms(self) -> int:
        """The longest wait of a long poll."""
        return min(self._quaestor.read_path.process.settings.realtime.live_wait_ms, LONGEST_WAIT_MS)

    @property
    def heartbeat_s(self) -> float:
        """Time between two signs of life of a stream."""
        return self._quaestor.read_path.process.settings.realtime.live_heartbeat_ms / 1_000

    async def _accept(self, websocket: WebSocket, send: Send) -> None:
        offered = websocket.scope.get("subprotocols", [])
        chosen = next((name for name in offered if name in FORMS), None)
        await websocket.accept(subprotocol=chosen)
        form = FORMS[chosen or _DEFAULT_FORM]
        closed = await self.serve(websocket.scope, websocket.receive, send, form=form, prompt=True)
        if closed is not None:
            # A client that reads nothing would hold its place for ever. A client that has gone needs no word.
            with suppress(WebSocketDisconnect, OSError, RuntimeError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await websocket.close(closed.code, closed.reason)

    async def serve(
        self, scope: Scope, receive: Receive, send: Send, *, form: RecordForm, prompt: bool = False
    ) -> SocketClosedError | None:
        """Serve one connection with the messages of a socket. Returns why the endpoint has ended it; None: the client left.

        prompt: a send may begin in any task, and go on in another.
        """
        socket = SocketConnection(scope, self.shared(), form=form)
        self._sockets.add(socket)
        self._quaestor.telemetry.live.connections.inc()
        try:
            await socket.run(receive, send, prompt=prompt)
        except SocketClosedError as closed:
            return closed
        finally:
            self._sockets.discard(socket)
            socket.count_sent()
            self._quaestor.telemetry.live.connections.dec()
        return None

    def _admits(self, websocket: WebSocket) -> bool:
        """Whether the page may open a socket. Programs other than browsers send no origin."""
        origin = websocket.headers.get("origin")
        if origin is None or "*" in self._origins or origin.lower() in self._origins:
            return True
        return urlsplit(origin).netloc.lower() == websocket.headers.get("host", "").lower() != ""

    def shared(self) -> SocketContext:
        """Parts of this event loop; a new loop, as of the next test client, gets its own."""
        loop = asyncio.get_running_loop()
        if (
            self._context is None
            or self._looking is None
            or self._looking.done()
            or self._looking.get_loop() is not loop
        ):
            groups = QueryGroups(self._quaestor, self._connection, limits=self._limits, clock=self._clock)
            self._context = SocketContext(
                database=self._connection.name,
                access=self._access,
                who=self._who,
                limits=self._limits,
                groups=groups,
                metrics=self._quaestor.telemetry.live,
                clock=self._clock,
            )
            self._looking = groups.start(self._look(groups))
        return self._context

    async def _look(self, groups: QueryGroups) -> None:
        """Once a second: end sockets and groups that have lasted too long. Ends with the last of them, and the last request."""
        watches = [
            groups.start(
                RightsWatch(self._quaestor, f"{self._connection.name}.{name}", self.recheck, failed=groups.failed).run()
            )
            for name in self._rights_in
        ]
        try:
            while self.places.total or self._sockets or len(groups):
                await asyncio.sleep(_LOOK_EVERY_S)
                if server_stops():
                    self.http.end_all()
                await self._look_at_sockets()
                groups.keep_house()
        finally:
            self.http.end_all()
            for watch in watches:
                watch.cancel()
            for socket in list(self._sockets):
                socket.close(TRY_LATER, "the service stops", end="stopping")
            self._measure(unsent=0, slow_readers=0)

    async def _look_at_sockets(self) -> None:
        """Look at all sockets, and measure what waits for their clients. Events are delivered in between."""
        loop = asyncio.get_running_loop()
        unsent = slow_readers = 0
        async for socket in in_parts(self._sockets):
            now_s = loop.time()
            socket.count_sent()
            unsent += len(socket.outbox)
            slow_readers += socket.takes_long(now_s)
            socket.look(now_s)
        self._measure(unsent=unsent, slow_readers=slow_readers)

    def _measure(self, *, unsent: int, slow_readers: int) -> None:
        metrics = self._quaestor.telemetry.live
        metrics.unsent.set(unsent)
        metrics.slow_readers.set(slow_readers)
