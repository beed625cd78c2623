"""A real HTTP server that speaks to clients with a sketch as the contract says: fields, endpoint, partitions, nonces, 304."""

from __future__ import annotations

import gzip
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quaestor.cache_sketch.expiring import ExpiringSketch
from quaestor.cache_sketch.wire_format import digest
from quaestor.read_path.key import resource
from quaestor.testing.serving import served_by_uvicorn

TTL_S = 60
NO_SKETCH = b"<html>no</html>"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Shop:
    """The application.

    asked: targets of all requests for pages, with the conditions that they carried.
    sketch_status, sketch_page: the endpoint's answer, if that is no sketch.
    missing: partitions without a sketch.
    weak: whether validators of sketches come weakened.
    broken: whether writes are done, and answered with an error.
    off: whether clients are forbidden to keep copies.
    status, fields: of the answers for pages; a field without a value is left out.
    written: receives every write, when it has taken effect.
    """

    def __init__(self) -> None:
        self.sketches: dict[str, ExpiringSketch] = {}
        self.values: dict[str, int] = {}
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.sketch_asked: list[str] = []
        self.sketch_status = 200
        self.sketch_page = NO_SKETCH
        self.missing: set[str] = set()
        self.weak = self.off = self.broken = False
        self.status = 200
        self.fields: dict[str, str] = {}
        self.written: Callable[[str], None] = lambda name: None
        self.app = Starlette(
            routes=[
                Route("/quaestor/sketch", self.sketch),
                Route("/quaestor/sketch/{partition}", self.sketch),
                Route("/plain", self.plain),
                Route("/moved", self.moved),
                Route("/zipped", self.zipped),
                Route("/{path:path}", self.page, methods=["GET", "PUT"]),
            ]
        )

    async def sketch(self, request: Request) -> Response:
        self.sketch_asked.append(str(request.url.query))
        partition = request.path_params.get("partition", "")
        if self.sketch_status != 200 or self.sketch_page != NO_SKETCH or partition in self.missing:
            return Response(
                self.sketch_page, 404 if partition in self.missing else self.sketch_status, media_type="text/html"
            )
        sketch = self.sketches.setdefault(partition, ExpiringSketch())
        made_ms = now_ms()
        sketch.sweep(made_ms)
        body = sketch.snapshot(made_ms)
        nonce = request.query_params.get("nonce")
        said = f"made={made_ms}, delta=60" + (f", nonce={nonce}" if nonce else "") + (", off" if self.off else "")
        etag = f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"'
        headers = {"quaestor-sketch": said, "etag": etag, "cache-control": "no-store" if nonce else "public, max-age=1"}
        if request.headers.get("if-none-match", "").removeprefix("W/") == etag:
            if self.weak:
                headers["etag"] = f"W/{etag}"
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="application/octet-stream")

    async def plain(self, request: Request) -> Response:
        self.asked.append(("/plain", request.headers.get("if-none-match"), request.headers.get("cache-control")))
        return Response("plain", headers={"cache-control": "max-age=60", "etag": '"plain"'})

    async def moved(self, request: Request) -> Response:
        return Response(status_code=307, headers={"location": request.query_params["to"]})

    async def zipped(self, request: Request) -> Response:
        headers = {"quaestor-ttl": f"{TTL_S};at={now_ms()}", "etag": '"zipped"', "content-encoding": "gzip"}
        return Response(gzip.compress(b"many words " * 100), headers=headers)

    async def page(self, request: Request) -> Response:
        """`?private`, `?vary` and `?in=<partition>` say what kind of answer it is."""
        name = resource(request.url.path.encode(), request.url.query.encode())
        if request.method == "PUT":
            self.write(name)
            return Response(status_code=500 if self.broken else 204, headers={"version": str(self.values[name])})
        query = request.query_params
        self.asked.append((name, request.headers.get("if-none-match"), request.headers.get("cache-control")))
        body = f"{self.values.get(name, 0)} {request.headers.get('authorization', '') if 'private' in query else ''}"
        if query.get("representation") == "ids":
            body = "[1, 2, 3]"
        if "vary" in query:
            body += request.headers.get("accept-language", "")
        at_ms = now_ms()
        partition = query.get("in", "")
        for partition_name in {partition, ""}:
            sketch = self.sketches.setdefault(partition_name, ExpiringSketch())
            sketch.report_read(digest(name), expires_at_ms=at_ms + TTL_S * 1000 + 2000, now_ms=at_ms)
        said = f"{TTL_S};at={at_ms}" + (f";sketch={partition}" if partition else "")
        headers = {"quaestor-ttl": said + (";private" if "private" in query else ""), "cache-control": "max-age=0"}
        headers["etag"] = f'"{hashlib.blake2b(body.encode(), digest_size=8).hexdigest()}"'
        if "vary" in query:
            headers["vary"] = "Accept-Language"
        headers = {name: value for name, value in (headers | self.fields).items() if value}
        if self.status == 200 and request.headers.get("if-none-match") == headers.get("etag", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, self.status, headers=headers)

    def write(self, name: str) -> None:
        """A write of another program."""
        self.values[name] = self.values.get(name, 0) + 1
        for sketch in self.sketches.values():
            sketch.report_write([digest(name)], now_ms=now_ms())
        self.written(name)


class Served(Protocol):
    """An object with an application."""

    @property
    def app(self) -> Starlette: ...


@contextmanager
def serving(served: Served) -> Iterator[str]:
    """The application on a port of its own; its URL."""
    with served_by_uvicorn(uvicorn.Config(served.app, port=0, log_level="warning", lifespan="on")) as url:
        yield url
