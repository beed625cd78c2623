"""The endpoint `GET /quaestor/sketch`: the Cache Sketch for clients, made at most once a second however often it is asked for.

While a part of the grid lags it is refused: it says nothing of writes that no cell has seen yet, so clients have to revalidate.
Bytes: docs/sketch_format.md; fields, and what clients may conclude from them: docs/sketch_clients.md.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from middleware.interface import Engine, RawHeaders, Send
from middleware.sketch_limit import NonceLimit
from middleware.sketch_snapshot import SketchSnapshot, acceptable
from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.sizing import DEFAULT
from quaestor.errors import QuaestorError
from quaestor.read_path.validation import none_match_fails

MICRO_CACHE_MS = 1_000
SKETCH = b"quaestor-sketch"
"""When the server made the sketch, how old it may be used, the number that the client sent, whether clients are switched off."""
_NONCE = re.compile(rb"[1-9][0-9]{0,9}")
_LARGEST_NONCE = 2**32
_LONGEST_QUERY = 1_024
_NO_STORE = (b"cache-control", b"no-store")


class SketchEndpoint:
    """The endpoint of one middleware. However many ask, one snapshot is made at a time, and one a second."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._snapshot: SketchSnapshot | None = None
        self._made_at_ms = 0
        self._until_ms = 0
        self._making: asyncio.Task[None] | None = None
        self._limit = NonceLimit()

    async def __call__(self, scope: Mapping[str, Any], send: Send) -> None:
        method = scope["method"]
        if method not in ("GET", "HEAD"):
            return await _refuse(send, 405, "", (b"allow", b"GET, HEAD"))
        nonce = _nonce(scope["query_string"])
        if nonce is None:
            return await _refuse(send, 400, f"nonce must be one number in 1..{_LARGEST_NONCE}, or be left out")
        now_ms = self._engine.read_path.clock()
        if nonce and not self._limit.passes(now_ms):
            return await _refuse(send, 429, "too many at once: ask without nonce", (b"retry-after", b"1"))
        if now_ms >= self._until_ms or now_ms < self._made_at_ms:
            if self._making is None or self._making.done() or self._making.get_loop() is not asyncio.get_running_loop():
                self._making = asyncio.create_task(self._make())
            await asyncio.shield(self._making)
        snapshot, now_ms = self._snapshot, self._engine.read_path.clock()
        if snapshot is None or not (snapshot.off or self._engine.registry.caught_up(now_ms=now_ms)):
            return await _refuse(send, 503, "", (b"retry-after", b"1"))
        return await self._present(snapshot, scope["headers"], nonce, now_ms, send, head=method == "HEAD")

    async def _present(
        self, snapshot: SketchSnapshot, asked: RawHeaders, nonce: int, now_ms: int, send: Send, *, head: bool
    ) -> None:
        coding, body = snapshot.coded(acceptable(asked))
        etag = snapshot.etag(coding)
        field = b"made=%d, delta=%d" % (snapshot.made_at_ms, self._engine.settings.sketch_delta_s)
        field += (b", nonce=%d" % nonce if nonce else b"") + (b", off" if snapshot.off else b"")
        headers = [
            _NO_STORE if nonce else (b"cache-control", b"public, max-age=%d" % (MICRO_CACHE_MS // 1000)),
            (b"age", b"%d" % (max(0, now_ms - snapshot.made_at_ms) // 1000)),
            (SKETCH, field),
            (b"etag", etag),
            (b"vary", b"accept-encoding"),
        ]
        held = [value for name, value in asked if name == b"if-none-match"]
        if held and none_match_fails(b", ".join(held), etag):
            return await _answer(send, 304, b"", headers)
        headers.append((b"content-type", b"application/octet-stream"))
        if coding:
            headers.append((b"content-encoding", coding))
        headers.append((b"content-length", b"%d" % len(body)))
        return await _answer(send, 200, b"" if head else body, headers)

    async def _make(self) -> None:
        """A failure counts for a second too: a server that is down is not asked by every request."""
        now_ms = self._engine.read_path.clock()
        self._made_at_ms, self._until_ms = now_ms, now_ms + MICRO_CACHE_MS
        try:
            if off := self._engine.settings.sketch_off:
                body = wire_format.saturated(DEFAULT)  # for whoever does not look at the switch
            else:
                body = await self._engine.sketch.snapshot(now_ms=now_ms)
        except QuaestorError as error:
            self._snapshot = None
            self._engine.telemetry.failure("sketch", "sketch_endpoint.snapshot_failed", error)
            return
        if self._snapshot is not None and self._snapshot.body == body:
            self._snapshot = self._snapshot.again(now_ms, off=off)
        else:
            self._snapshot = SketchSnapshot(body, now_ms, off=off)


def _nonce(query: bytes) -> int | None:
    """The number that the client sent; 0: it sent none; None: it sent something else under that name."""
    if len(query) > _LONGEST_QUERY:
        return None
    sent = [value for name, _, value in (piece.partition(b"=") for piece in query.split(b"&")) if name == b"nonce"]
    if not sent:
        return 0
    if len(sent) > 1 or _NONCE.fullmatch(sent[0]) is None:
        return None
    number = int(sent[0])
    return number if number <= _LARGEST_NONCE else None


async def _refuse(send: Send, status: int, text: str, *further: tuple[bytes, bytes]) -> None:
    body = text.encode()
    described = [(b"content-type", b"text/plain; charset=utf-8")] if body else []
    await _answer(send, status, body, [*further, *described, _NO_STORE, (b"content-length", b"%d" % len(body))])


async def _answer(send: Send, status: int, body: bytes, headers: RawHeaders) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
