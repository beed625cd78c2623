"""A careless cache before the application: it keeps everything, loses purges, restarts and mangles sketches."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class CarelessCache:
    """The application of the cache.

    lossy: share of purges that never arrive.
    hostile: whether it strips queries from requests for sketches, keeps them for ever, errors too, and drops fields now and then.
    """

    def __init__(self, origin: str, *, seed: int, lossy: float = 0.5, hostile: bool = False) -> None:
        self.origin, self.lossy, self.hostile = origin, lossy, hostile
        self._chance = random.Random(seed)
        self._kept: dict[str, httpx.Response] = {}
        self.hits = 0
        self.app = Starlette(
            routes=[Route("/{path:path}", self.answer, methods=["GET", "PUT"])], lifespan=self._running
        )

    @asynccontextmanager
    async def _running(self, app: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(base_url=self.origin, timeout=60) as self._client:
            yield

    def purge(self, name: str) -> None:
        """Purge by the application, called from another thread."""
        if self._chance.random() >= self.lossy:
            self._kept.pop(name, None)

    def restart(self) -> None:
        """Forget everything. From another thread."""
        self._kept = {}

    async def answer(self, request: Request) -> Response:
        target, sketch = request.url.path, request.url.path.startswith("/quaestor/sketch")
        if request.url.query and not (sketch and self.hostile and self._chance.random() < 0.5):
            target += f"?{request.url.query}"
        headers = {k: v for k, v in request.headers.items() if k not in ("host", "connection", "if-none-match")}
        if request.method != "GET":
            passed = await self._client.request(request.method, target, headers=headers)
            return Response(passed.content, passed.status_code, headers=dict(passed.headers))
        past = "no-cache" in headers.get("cache-control", "") and not (sketch and self.hostile and "?" not in target)
        kept = None if past or (sketch and not self.hostile) else self._kept.get(target)
        self.hits += kept is not None
        if kept is None:
            kept = await self._client.get(target, headers=headers)
            if not (sketch and "?" in target):
                self._kept[target] = kept
        fields = {k: v for k, v in kept.headers.items() if k not in ("server", "transfer-encoding", "connection")}
        if self.hostile and not past and self._chance.random() < 0.02:
            fields.pop("quaestor-ttl", None)
        if "etag" in fields and request.headers.get("if-none-match") == fields["etag"]:
            fields.pop("content-length", None)
            return Response(status_code=304, headers=fields)
        return Response(kept.content, kept.status_code, headers=fields)
