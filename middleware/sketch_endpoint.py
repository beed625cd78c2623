"""The endpoint `GET /quaestor/sketch`, and `/quaestor/sketch/<partition>`: the Cache Sketch for clients.

While a part of the grid lags, the endpoint refuses: the sketch lacks writes that no cell has seen yet, so clients must
revalidate. Bytes: docs/sketch_format.md. Fields, and the conclusions that clients may draw: docs/sketch_clients.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from quaestor.cache_sketch.partitions import TOKEN
from quaestor.middleware.interface import Engine, RawHeaders, Send
from quaestor.middleware.sketch_snapshot import SketchSnapshot, acceptable
from quaestor.middleware.sketch_source import MICRO_CACHE_MS, SketchSource, SketchSources
from quaestor.read_path.validation import none_match_fails
from quaestor.token_bucket import TokenBucket

SKETCH = b"quaestor-sketch"
"""Field with the time of the sketch, its longest age, the client's nonce, and whether clients are switched off."""
_NONCE = re.compile(rb"[1-9][0-9]{0,9}")
_LARGEST_NONCE = 2**32
_VERSION = re.compile(rb"(?:^|&)have=([0-9a-f]{32})(?:&|$)")
_LONGEST_QUERY = 1_024
NONCES_PER_SECOND = 100
"""Requests with a number of the client's own (`?nonce=`) that reach one process, of all clients together. A refused client
revalidates everything, which costs the origin a request each time. The limit is far above what clients need: they send a nonce
only after a cache in between has shown them an old sketch."""
NONCES_AT_ONCE = 200
_NO_STORE = (b"cache-control", b"no-store")


class SketchEndpoint:
    """The endpoint of one middleware."""

    def __init__(self, engine: Engine, path: str) -> None:
        self._engine = engine
        self._path = path
        self._sources = SketchSources(engine)
        self._limit = TokenBucket(per_second=NONCES_PER_SECOND, burst=NONCES_AT_ONCE)

    def serves(self, path: str) -> bool:
        """Whether a path is the endpoint's, or a partition's below it."""
        if not path.startswith(self._path):
            return False
        below = path.removeprefix(self._path)
        return not below or _partition(below) is not None

    async def __call__(self, scope: Mapping[str, Any], path: str, send: Send) -> None:
        method = scope["method"]
        if method not in ("GET", "HEAD"):
            return await _refuse(send, 405, "", (b"allow", b"GET, HEAD"))
        nonce = _nonce(scope["query_string"])
        if nonce is None:
            return await _refuse(send, 400, f"nonce must be one number in 1..{_LARGEST_NONCE}, or be left out")
        now_ms = self._engine.read_path.clock()
        if nonce and not self._limit.passes(now_ms):
            return await _refuse(send, 429, "too many at once: ask without nonce", (b"retry-after", b"1"))
        source = await self._sources.of(_partition(path.removeprefix(self._path)) or "", now_ms)
        snapshot, now_ms = await source.current(now_ms), self._engine.read_path.clock()
        if snapshot is None or not (snapshot.off or self._engine.registry.caught_up(now_ms=now_ms)):
            return await _refuse(send, 503, "", (b"retry-after", b"1"))
        return await self._present(source, snapshot, scope, nonce, now_ms, send)

    async def _present(
        self,
        source: SketchSource,
        snapshot: SketchSnapshot,
        scope: Mapping[str, Any],
        nonce: int,
        now_ms: int,
        send: Send,
    ) -> None:
        request_headers: RawHeaders = scope["headers"]
        codings = acceptable(request_headers)
        coding, body = snapshot.coded(codings)
        etag, base = snapshot.etag(coding), b""
        if (named := _VERSION.search(scope["query_string"])) is not None:
            known = source.earlier(named[1])
            delta = None if known is None or named[1] == snapshot.version else snapshot.delta(known, codings)
            if delta is not None:
                base, (coding, body) = named[1], delta
                etag = b'"%s-since-%s-%s"' % (snapshot.version, base, coding)
        field = b"made=%d, delta=%d" % (snapshot.made_at_ms, self._engine.settings.sketch.sketch_delta_s)
        field += (b", nonce=%d" % nonce if nonce else b"") + (b", off" if snapshot.off else b"")
        field += b', base="%s"' % base if base else b""
        headers = [
            _NO_STORE if nonce else (b"cache-control", b"public, max-age=%d" % (MICRO_CACHE_MS // 1000)),
            (b"age", b"%d" % (max(0, now_ms - snapshot.made_at_ms) // 1000)),
            (SKETCH, field),
            (b"etag", etag),
            (b"vary", b"accept-encoding"),
        ]
        if not nonce:
            headers.append((b"cdn-cache-control", b"max-age=%d" % (MICRO_CACHE_MS // 1000)))
        held = [value for name, value in request_headers if name == b"if-none-match"]
        if held and none_match_fails(b", ".join(held), etag):
            return await _answer(send, 304, b"", headers)
        headers.append((b"content-type", b"application/octet-stream"))
        if coding:
            headers.append((b"content-encoding", coding))
        headers.append((b"content-length", b"%d" % len(body)))
        return await _answer(send, 200, b"" if scope["method"] == "HEAD" else body, headers)


def _partition(below: str) -> str | None:
    """Return the partition's token in the path below the endpoint; None if there is none."""
    return below[1:] if below.startswith("/") and TOKEN.fullmatch(below[1:]) else None


def _nonce(query: bytes) -> int | None:
    """Return the client's nonce; 0: none was sent; None: it is malformed."""
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
