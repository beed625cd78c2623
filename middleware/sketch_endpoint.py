"""The endpoint `GET /quaestor/sketch`: the Cache Sketch for clients, made at most once a second however often it is asked for.

While a part of the grid lags it is refused: it says nothing of writes that no cell has seen yet, so clients have to revalidate.
"""

from __future__ import annotations

import asyncio

from middleware.interface import Engine, RawHeaders, Send
from quaestor.errors import QuaestorError

MICRO_CACHE_MS = 1_000
GENERATED = b"quaestor-sketch-generated-ms"
"""When the server made the sketch, in ms since the epoch: its age counts from then, not from when a client got it."""


class SketchEndpoint:
    """The endpoint of one middleware. However many ask, one snapshot is made at a time, and one a second."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._body: bytes | None = None
        self._made_at_ms = 0
        self._until_ms = 0
        self._making: asyncio.Task[None] | None = None

    async def __call__(self, method: str, send: Send) -> None:
        if method not in ("GET", "HEAD"):
            return await _answer(send, 405, b"", [(b"allow", b"GET, HEAD"), (b"cache-control", b"no-store")])
        now_ms = self._engine.read_path.clock()
        if now_ms >= self._until_ms or now_ms < self._made_at_ms:
            if self._making is None or self._making.done() or self._making.get_loop() is not asyncio.get_running_loop():
                self._making = asyncio.create_task(self._make())
            await asyncio.shield(self._making)
        if self._body is None or not self._engine.registry.caught_up(now_ms=self._engine.read_path.clock()):
            return await _answer(send, 503, b"", [(b"retry-after", b"1"), (b"cache-control", b"no-store")])
        age_s = max(0, self._engine.read_path.clock() - self._made_at_ms) // 1000
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"cache-control", b"public, max-age=1"),
            (b"age", b"%d" % age_s),
            (GENERATED, b"%d" % self._made_at_ms),
        ]
        return await _answer(send, 200, self._body, headers, head=method == "HEAD")

    async def _make(self) -> None:
        """A failure counts for a second too: a server that is down is not asked by every request."""
        now_ms = self._engine.read_path.clock()
        self._made_at_ms, self._until_ms = now_ms, now_ms + MICRO_CACHE_MS
        try:
            self._body = await self._engine.sketch.snapshot(now_ms=now_ms)
        except QuaestorError as error:
            self._body = None
            self._engine.telemetry.failure("sketch", "sketch_endpoint.snapshot_failed", error)


async def _answer(send: Send, status: int, body: bytes, headers: RawHeaders, *, head: bool = False) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
