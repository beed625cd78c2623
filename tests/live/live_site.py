"""One app with a live page, behind the middleware under a real server;
registrations die exactly when a test kills them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaestor.caching import Declaration, cached
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.live_answers import LiveAnswers
from quaestor.ports import CdnAdapter
from tests.end_to_end.scripted_origin import serving
from tests.hand_driven import HandEngine, reads
from tests.support import eventually

Handler = Callable[[Request], Awaitable[Response]]


class LiveSite:
    """A page at every path. `runs` counts the handler's runs; `version` is what the page shows."""

    def __init__(
        self,
        handler: Handler | None = None,
        *,
        declared: Declaration | None = None,
        outer: list[Middleware] | None = None,
        inner: list[Middleware] | None = None,
        cdn: Sequence[CdnAdapter] = (),
        everywhere: bool = False,
        **settings: Any,
    ) -> None:
        self.engine = HandEngine(**{"live_interval_ms": 0} | settings)
        self.runs, self.version = 0, 1

        async def page(request: Request) -> Response:
            self.runs += 1
            if handler is not None:
                return await handler(request)
            reads()
            return JSONResponse({"version": self.version})

        cache = Middleware(
            QuaestorMiddleware,
            quaestor=self.engine,
            cdn=cdn,
            live=everywhere,
            routes={"/{rest}": declared or cached(live=True), "/plain/*": cached()},
        )
        routes = [Route("/{rest:path}", page, methods=["GET", "POST"])]
        self.app = Starlette(routes=routes, middleware=[*(outer or []), cache, *(inner or [])])

    def change(self, version: int) -> None:
        """Write: what the page shows changes, and all registrations die."""
        self.version = version
        self.die()

    def die(self) -> None:
        ids = list(self.engine.registry.leases)
        self.engine.registry.kill(*ids)
        self.engine.read_path.lookup.watches.died(ids)

    async def until_runs(self, runs: int) -> None:
        await eventually(lambda: self.runs == runs)

    async def until_followed(self) -> None:
        """Wait until a stream waits for the end of the present answer."""
        await eventually(lambda: len(self.engine.read_path.lookup.watches) > 0)

    @asynccontextmanager
    async def served(self, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
        """Serve the app. options: of uvicorn."""
        async with (
            serving(uvicorn.Config(self.app, ws="none", **options)) as url,
            httpx.AsyncClient(base_url=url, timeout=20) as client,
        ):
            yield client
            await self.nobody_left()

    async def nobody_left(self) -> None:
        """Wait until all clients have left, and see that nothing of them remains."""
        watches = self.engine.read_path.lookup.watches
        await eventually(lambda: self.gauge("followers") == 0 and self.gauge("followed_answers") == 0)
        await eventually(lambda: len(watches) == 0)
        await asyncio.sleep(0)

    def live(self) -> LiveAnswers:
        """The live part of the middleware."""
        middleware: Any = self.app.middleware_stack
        while not isinstance(middleware, QuaestorMiddleware):
            middleware = middleware.app
        return middleware._live

    def gauge(self, name: str) -> float:
        return self.engine.telemetry.families.registry.get_sample_value(f"quaestor_{name}") or 0.0
