"""A proxy before an application, with the faults that proxies have: it drops query strings, keeps what it must not, or fails."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quaestor.testing.serving import serving


class HostileProxy:
    """One proxy.

    strips: names of parameters that it drops; "*": all.
    keeps: statuses of answers that it keeps for ever, by URL.
    by_path: it keeps answers by their path alone.
    fails: share of requests that it answers with 503, of a seeded generator.
    redirects: it answers each request with a redirect to the same URL.
    requests: number of requests that it has taken.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self.mend()

    def mend(self) -> None:
        """Have no fault, and keep nothing."""
        self.strips: frozenset[str] = frozenset()
        self.keeps: frozenset[int] = frozenset()
        self.by_path = False
        self.fails = 0.0
        self.redirects = False
        self.requests = 0
        self._random = random.Random(7)
        self._kept: dict[str, Response] = {}

    async def answer(self, request: Request) -> Response:
        """Answer one request, from what is kept or from the origin."""
        self.requests += 1
        if self._random.random() < self.fails:
            return Response(status_code=503)
        if self.redirects:
            return Response(status_code=307, headers={"location": str(request.url)})
        pairs = [pair for pair in request.query_params.multi_items() if not self.strips & {pair[0], "*"}]
        name = request.url.path if self.by_path else str(request.url)
        if name in self._kept:
            return self._kept[name]
        async with httpx.AsyncClient(timeout=60, trust_env=False) as web:
            got = await web.get(self._origin + request.url.path, params=pairs)
        answer = Response(got.content, status_code=got.status_code, media_type=got.headers.get("content-type"))
        if got.status_code in self.keeps:
            self._kept[name] = answer
        return answer


@contextmanager
def hostile_proxy(origin: str) -> Iterator[tuple[HostileProxy, str]]:
    """Serve a proxy before an origin; gives the proxy and its URL."""
    proxy = HostileProxy(origin)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield

    app = Starlette(routes=[Route("/{path:path}", proxy.answer)], lifespan=lifespan)
    with serving(app) as url:
        yield proxy, url
