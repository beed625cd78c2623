"""Endpoint for the results of continuous queries: `app.include_router(ContinuousResults(quaestor, scope=public()))`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from quaestor.app import Quaestor
from quaestor.caching import Scope, cached, private
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.live.followers import Places
from quaestor.live.pages.answers import YEAR_S, answered, problem, problem_of
from quaestor.live.pages.following import PageEvents, follow_socket, position_of
from quaestor.live.pages.source import PageSource
from quaestor.live.pages.watching import PageWatch
from quaestor.live.routers import declared, require_path
from quaestor.policy import Sharing

TAG: Final = "continuous-results"
"""Tag of the pointers of all queries, for `quaestor.invalidate(tags=[...])`."""
POINTER_S: Final = 60.0
"""Longest life of a stored pointer. A new page invalidates it; the bound is for an invalidation that failed."""
_MOST_HEADS: Final = 1_000
_POLICY: Final = 1_008
_REFUSALS: Final = {
    "client": (429, "too many streams of this client"),
    "process": (503, "this process has no place for another stream"),
}


class ContinuousResults(APIRouter):
    """Endpoint for the results of installed queries, to be included in any FastAPI application.

    quaestor: the application's Quaestor.
    path: of the endpoint, as clients see it.
    scope: with whom answers are shared: public(), per_user(by=...), per_role(by=...). None: no cache shares them.
    dependencies: of every route, such as `[Depends(signed_in)]`; a dependency that refuses raises HTTPException.

    Paths: docs/continuous/results.md. Raises ConfigurationError if neither a scope nor a dependency decides who may read.
    """

    def __init__(
        self,
        quaestor: Quaestor,
        *,
        path: str = "/continuous",
        scope: Scope | None = None,
        dependencies: Sequence[Any] = (),
    ) -> None:
        if scope is None and not dependencies:
            raise ConfigurationError(
                "nobody decides who may read the results: write scope=public(), or dependencies=[Depends(...)]"
            )
        require_path(path)
        super().__init__(prefix=path, dependencies=list(dependencies), tags=["continuous queries"])
        self._quaestor = quaestor
        self._path = path
        settings = quaestor.settings
        shared = "public" if scope is not None and scope.sharing is Sharing.PUBLIC else "private"
        self._page_lifetime = f"{shared}, max-age={YEAR_S}, immutable"
        self._send_s = settings.realtime.live_send_timeout_ms / 1_000
        self._places = Places(
            most=settings.realtime.live_followers, most_of_one=settings.realtime.live_followers_of_client
        )
        self._watch: PageWatch | None = None
        stored = cached(scope=private()) if scope is None else cached(scope=scope, ttl=POINTER_S, tags=[TAG])
        unstored = cached(bypass=True)
        for below, endpoint, declaration in (
            ("", self._pointer, stored), ("/runs", self._runs, unstored), ("/runs/{run}", self._page, unstored),
            ("/events", self._events, unstored),
        ):  # fmt: skip
            self.add_api_route(
                f"/{{name}}{below}",
                declared(endpoint, declaration),
                methods=["GET"],
                response_model=None,
                name=f"continuous-results{below}",
            )
        self.add_api_websocket_route("/{name}/socket", self._socket, name="continuous-results/socket")
        quaestor.parts.continuous.observers.append(self._published)

    async def _pointer(self, name: str, request: Request) -> Response:
        """Newest run of a query: stored by the cache, and invalidated by each run that has results."""
        try:
            newest = await anyio.to_thread.run_sync(self._pages().newest, name)
        except (ConfigurationError, DependencyError) as error:
            return problem_of(error)
        page = None if newest is None else self._url(name, newest)
        body = json.dumps({"query": name, "newest": newest, "page": page})
        is_named = request.url.path == self._named(name)  # otherwise no invalidation would reach it
        return answered(request, body, "" if is_named else "no-store")

    async def _runs(self, name: str, request: Request, limit: int = 100) -> Response:
        """Runs after `after`, oldest first."""
        after = position_of(request)
        if after is None or not 0 < limit <= _MOST_HEADS:
            return problem(400, f"after is the number of a run, limit is from 1 to {_MOST_HEADS}")
        try:
            heads = await anyio.to_thread.run_sync(self._pages().after, name, after, limit)
        except (ConfigurationError, DependencyError) as error:
            return problem_of(error)
        runs = [{"run": head.run, "rows": head.rows, "page": self._url(name, head.run)} for head in heads]
        body = json.dumps({"query": name, "runs": runs, "next": heads[-1].run if heads else after})
        return answered(request, body, "private, no-cache")

    async def _page(self, name: str, run: int, request: Request, first: int = 0) -> Response:
        """Rows of a run. The page never changes."""
        try:
            body = await anyio.to_thread.run_sync(self._pages().body, name, run, first)
        except (ConfigurationError, DependencyError) as error:
            return problem_of(error)
        if body is None:
            return problem(404, "the run has no such results")
        return answered(request, body, self._page_lifetime)

    async def _events(self, name: str, request: Request) -> Response:
        """Pages after `after` or `Last-Event-ID` as server-sent events, as they appear."""
        after, address = position_of(request), request.client.host if request.client else ""
        if after is None:
            return problem(400, "after is the number of a run")
        refusal = self._places.refusal(address)
        if refusal:
            return problem(*_REFUSALS[refusal])
        give_back = self._places.take(address)
        try:
            await anyio.to_thread.run_sync(self._pages().newest, name)
        except (ConfigurationError, DependencyError) as error:
            give_back()
            return problem_of(error)
        source, watch = self._pages(), self._watching()
        return PageEvents(source, watch, name, after, give_back=give_back, send_s=self._send_s)

    async def _socket(self, socket: WebSocket) -> None:
        """Pages after `after` as text messages, as they appear."""
        after, address = position_of(socket), socket.client.host if socket.client else ""
        if after is None or self._places.refusal(address):
            return await socket.close(_POLICY)
        give_back = self._places.take(address)
        try:
            await anyio.to_thread.run_sync(self._pages().newest, socket.path_params["name"])
            await socket.accept()
            await follow_socket(socket, self._pages(), self._watching(), after, send_s=self._send_s)
        except (ConfigurationError, DependencyError):
            await socket.close(_POLICY)
        finally:
            give_back()

    async def _published(self, name: str) -> None:
        """Wake the followers of a query, and invalidate its pointer in every cache."""
        if self._watch is not None:
            self._watch.nudge(name)
        await self._quaestor.invalidate(urls=[self._named(name)])

    def _pages(self) -> PageSource:
        return self._quaestor.parts.continuous.pages()

    def _watching(self) -> PageWatch:
        if self._watch is None:
            self._watch = PageWatch(self._pages())
        return self._watch

    def _named(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"

    def _url(self, name: str, run: int) -> str:
        return f"{self._named(name)}/runs/{run}"
