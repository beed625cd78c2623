"""Routers of channels for FastAPI applications: results for brokers and subscribers, and posts to feeds.

    app.include_router(ChannelResults(quaestor))
    app.include_router(ChannelFeeds(quaestor, dependencies=[Depends(may_write)]))

Protocol: docs/channels/brokers.md and docs/channels/feeds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from quaestor.app import Quaestor
from quaestor.caching import Scope, cached, public
from quaestor.errors import ConfigurationError
from quaestor.live.results.endpoint import ResultEndpoint
from quaestor.live.routers import declared, require_path

TAG: Final = "channel-results"
"""Tag of the pointers of all channels, for `quaestor.invalidate(tags=[...])`."""
POINTER_S: Final = 60.0
"""Longest life of a stored pointer. New results invalidate it; the bound is for an invalidation that failed."""


class ChannelResults(APIRouter):
    """Endpoint for the results of channels, to be included in any FastAPI application.

    quaestor: the application's Quaestor, with a `continuous_folder`.
    path: of the endpoint, as clients see it.
    scope: with whom the newest run of a channel is shared. The pages decide by themselves: a broker signs its requests, and the
        id of a subscription admits to its results.
    dependencies: of every route, besides. A dependency of the socket takes an `HTTPConnection`.

    Raises ConfigurationError without a folder.
    """

    def __init__(
        self,
        quaestor: Quaestor,
        *,
        path: str = "/channels",
        scope: Scope | None = None,
        dependencies: Sequence[Any] = (),
    ) -> None:
        require_path(path)
        super().__init__(prefix=path, dependencies=list(dependencies), tags=["channels"])
        self._quaestor = quaestor
        self._path = path
        hosted = quaestor.parts.channels
        self._endpoint = ResultEndpoint(
            hosted.running().results, quaestor.settings.realtime.live_followers, is_stored=self._is_stored
        )
        pointer = cached(scope=scope or public(), ttl=POINTER_S, tags=[TAG], headers=["prefer"])
        unstored = cached(bypass=True)
        subscription = "/{channel}/subscriptions/{subscription}"
        for below, method, endpoint, declaration in (
            ("/{channel}/newest", "GET", self._endpoint.newest, pointer),
            ("/{channel}/results", "GET", self._endpoint.of_broker, unstored),
            ("/{channel}/acknowledgements", "POST", self._endpoint.acknowledge, unstored),
            (f"{subscription}/results", "GET", self._endpoint.of_subscription, unstored),
        ):
            self.add_api_route(
                below, declared(endpoint, declaration), methods=[method], response_model=None, name=f"channels{below}"
            )
        self.add_api_websocket_route(f"{subscription}/socket", self._socket, name="channels/socket")
        hosted.observers.append(self._published)

    async def _socket(self, socket: WebSocket) -> None:
        """Results of a subscription as messages."""
        await self._endpoint.socket(socket.scope, socket.receive, socket.send)

    async def _published(self, channel: str) -> None:
        """Invalidate the pointer of a channel in every cache."""
        await self._quaestor.invalidate(urls=[self._named(channel)])

    def _is_stored(self, request: Request) -> bool:
        """Whether an invalidation reaches the pointer that this request asks for."""
        return not request.url.query and request.url.path == self._named(request.path_params["channel"])

    def _named(self, channel: str) -> str:
        return f"{self._path}/{quote(channel, safe='')}/newest"


class ChannelFeeds(APIRouter):
    """Endpoint for the posts of feeds whose source is of type http.

    dependencies: decide who may write, such as `[Depends(may_write)]`; a dependency that refuses raises HTTPException.
    anyone: every client may write.

    Raises ConfigurationError if neither is there.
    """

    def __init__(
        self, quaestor: Quaestor, *, path: str = "/feeds", dependencies: Sequence[Any] = (), anyone: bool = False
    ) -> None:
        require_path(path)
        if not dependencies and not anyone:
            raise ConfigurationError(
                "nobody decides who may write to feeds: write dependencies=[Depends(...)], or anyone=True"
            )
        super().__init__(prefix=path, dependencies=list(dependencies), tags=["feeds"])
        self._quaestor = quaestor
        quaestor.parts.channels.takes_posts = True
        self.add_api_route(
            "/{feed}",
            declared(self._post, cached(bypass=True)),
            methods=["POST"],
            response_model=None,
            name="feeds/{feed}",
        )

    async def _post(self, request: Request) -> Response:
        """Write the records of a body. The answer comes once they are durable."""
        return await self._quaestor.parts.channels.running().posts.answer(request)
