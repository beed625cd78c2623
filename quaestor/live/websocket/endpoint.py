"""Endpoint for live queries: `app.include_router(LiveQueries(db, quaestor=quaestor, access=...))`."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.database import Database
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError
from quaestor.live.websocket.connection import TRY_LATER, SocketClosedError, SocketConnection, SocketContext
from quaestor.live.websocket.forms import FORMS
from quaestor.live.websocket.groups import Engine, QueryGroups
from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.principals import WhoSubscribes
from quaestor.rest.access import Access

_LOOK_EVERY_S: Final = 1.0
_DEFAULT_FORM: Final = next(iter(FORMS))


class LiveQueries(APIRouter):
    """WebSocket endpoint for live queries of one database, to be included in any FastAPI application.

    db: a pymongo database, asynchronous or not.
    quaestor: the application's Quaestor.
    path: of the endpoint. The client module for pages is at the same path with `.js` behind it.
    access: rules of the collections, as of a QuaestorRouter. By default no client may read anything.
    principal: the principal of a socket, as of a QuaestorRouter; None: every client is anonymous. The function receives a
        request with the fields of the handshake, and with `Authorization: Bearer <token>` for a token that a message brings.
        A `Grant` carries the end of the credentials too.
    origins: pages that may open a socket, such as "https://shop.example", besides those of the endpoint's own host. "*": all.
    limits: of sockets, subscriptions and messages.

    Protocol: docs/live_protocol.md. Raises ConfigurationError for arguments that cannot work.
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
    ) -> None:
        super().__init__()
        if not isinstance(db, AsyncDatabase | Database):
            raise ConfigurationError(f"a pymongo AsyncDatabase or Database is needed, not {type(db).__name__}")
        if not hasattr(quaestor, "subscribe"):
            raise ConfigurationError(f"quaestor is a {type(quaestor).__name__}; write quaestor=Quaestor()")
        if isinstance(origins, str) or not all(one == "*" or urlsplit(one).netloc for one in origins):
            raise ConfigurationError(f"origins={origins!r}: a list of origins such as 'https://shop.example', or ['*']")
        self._endpoint = LiveEndpoint(
            db,
            quaestor=quaestor,
            access=access or Access(),
            who=principal,
            origins=frozenset(one.rstrip("/").lower() for one in origins),
            limits=limits or SocketLimits(),
        )
        self.routes.append(WebSocketRoute(path, self._endpoint))
        self.routes.append(Route(f"{path}.js", ClientModule(), methods=["GET"], name="live-client"))

    async def recheck(self) -> None:
        """Look anew at the rights of every connected client: after a change of roles that no write to the records shows.

        Subscriptions with other rights receive a new result; those without rights end with an error.
        """
        await self._endpoint.recheck()


class ClientModule:
    """ASGI application that answers with the client for browsers, as clients/js builds it."""

    def __init__(self) -> None:
        self._body = Path(__file__).with_name("client.js").read_bytes()
        self._etag = f'"{hashlib.sha256(self._body).hexdigest()[:32]}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope)
        headers = {"etag": self._etag, "cache-control": "no-cache", "x-content-type-options": "nosniff"}
        if request.headers.get("if-none-match") == self._etag:
            response = Response(status_code=304, headers=headers)
        else:
            response = Response(self._body, media_type="text/javascript", headers=headers)
        await response(scope, receive, send)


class LiveEndpoint:
    """ASGI application that serves the sockets."""

    def __init__(
        self,
        database: Any,
        *,
        quaestor: Engine,
        access: Access,
        who: WhoSubscribes | None,
        origins: frozenset[str],
        limits: SocketLimits,
        clock: Clock = system_clock,
    ) -> None:
        self._quaestor = quaestor
        self._database = database
        self._access = access
        self._who = who
        self._origins = origins
        self._limits = limits
        self._clock = clock
        self._sockets: set[SocketConnection] = set()
        self._addresses: Counter[str] = Counter()
        self._context: SocketContext | None = None
        self._looking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket."""
        websocket = WebSocket(scope, receive, send)
        refusal = self._refusal(websocket)
        if refusal is not None:
            reason, status, text = refusal
            self._quaestor.telemetry.live.rejected.labels(reason).inc()
            await websocket.send_denial_response(PlainTextResponse(text, status_code=status))
            return
        offered = scope.get("subprotocols", [])
        chosen = next((name for name in offered if name in FORMS), None)
        await websocket.accept(subprotocol=chosen)
        await self._serve(websocket, SocketConnection(scope, self._shared(), form=FORMS[chosen or _DEFAULT_FORM]))

    async def recheck(self) -> None:
        """See LiveQueries.recheck."""
        for socket in list(self._sockets):
            await socket.recheck()

    async def _serve(self, websocket: WebSocket, socket: SocketConnection) -> None:
        address = _address(websocket)
        self._sockets.add(socket)
        self._addresses[address] += 1
        self._quaestor.telemetry.live.connections.inc()
        try:
            await socket.run(websocket.receive, websocket.send)
        except SocketClosedError as closed:
            await websocket.close(closed.code, closed.reason)
        finally:
            self._sockets.discard(socket)
            self._quaestor.telemetry.live.connections.dec()
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    def _refusal(self, websocket: WebSocket) -> tuple[str, int, str] | None:
        """Reason, status and text of a refused handshake; None: it is accepted."""
        if not self._admits(websocket):
            return "origin", 403, "pages of this origin may not open the socket; name it in LiveQueries(origins=[...])"
        if len(self._sockets) >= self._limits.connections:
            return "connections", 503, "too many sockets; try again later"
        if self._addresses[_address(websocket)] >= self._limits.connections_an_address:
            return "address", 429, "too many sockets from this address"
        return None

    def _admits(self, websocket: WebSocket) -> bool:
        """Whether the page may open a socket. Programs other than browsers send no origin."""
        origin = websocket.headers.get("origin")
        if origin is None or "*" in self._origins or origin.lower() in self._origins:
            return True
        return urlsplit(origin).netloc.lower() == websocket.headers.get("host", "").lower() != ""

    def _shared(self) -> SocketContext:
        """Parts of this event loop; a new loop, as of the next test client, gets its own."""
        loop = asyncio.get_running_loop()
        if (
            self._context is None
            or self._looking is None
            or self._looking.done()
            or self._looking.get_loop() is not loop
        ):
            groups = QueryGroups(self._quaestor, self._database, limits=self._limits, clock=self._clock)
            self._context = SocketContext(
                database=self._database.name,
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
        """Once a second: end sockets and groups that have lasted too long. Ends with the last of them."""
        loop = asyncio.get_running_loop()
        try:
            while self._sockets or len(groups):
                await asyncio.sleep(_LOOK_EVERY_S)
                for socket in list(self._sockets):
                    socket.look(loop.time())
                groups.keep_house()
        finally:
            for socket in list(self._sockets):
                socket.close(TRY_LATER, "the service stops")


def _address(websocket: WebSocket) -> str:
    return websocket.client.host if websocket.client else ""
