"""A small application that keeps the contract between servers and clients with the Cache Sketch, and proxies that do not."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from benchmarks.setups.clients.node import CLIENT, run
from quaestor import middleware
from quaestor.cache_sketch import MemoryCacheSketch
from quaestor.read_path.key import resource
from quaestor.testing.serving import served_by_uvicorn

TTL_S = 600
PAGE = """<!doctype html><link rel="icon" href="data:,"><script type="module">
import { Client } from "/src/client.ts";
window.errors = [];
window.onerror = (message) => { window.errors.push(String(message)); };
window.onunhandledrejection = (event) => { window.errors.push(String(event.reason)); };
window.warnings = [];
console.warn = (text) => window.warnings.push(text);
window.client = new Client(OPTIONS);
window.get = async (url, init) => (await client.fetch(url, init)).json();
window.ready = true;
</script>"""
WORKER_PAGE = """<!doctype html><link rel="icon" href="data:,"><script type="module" src="/quaestor/register.js?RULES"></script>
<script>
window.errors = [];
window.onerror = (message) => { window.errors.push(String(message)); };
window.get = async (url, init) => (await fetch(url, init)).json();
window.controlled = async () => {
  while (!navigator.serviceWorker.controller) {
    await new Promise((done) => navigator.serviceWorker.addEventListener("controllerchange", done, { once: true }));
  }
};
window.ready = true;
</script>"""
"""A page that knows nothing of the client but the line that registers the worker."""
OWN_PAGE = """<!doctype html><link rel="icon" href="data:,">
<script>
window.refused = [];
addEventListener("quaestor-refused", ({ detail }) => window.refused.push(detail));
window.warnings = [];
console.warn = (text) => window.warnings.push(text);
REGISTERED
</script>""" + WORKER_PAGE.removeprefix('<!doctype html><link rel="icon" href="data:,">')
"""A page of a site that has a service worker of its own."""
BUILT = Path(middleware.__file__).parent / "browser"


@cache
def stripped(name: str) -> bytes:
    """A module of the client as a browser takes it."""
    return str(json.loads(run("stripped.ts", [name]))).encode()


class Origin:
    """The application. Its fields may be read and set from the test's thread.

    rules, release: of the service worker.
    own: the script of the site's own service worker, at `/sw.js`.
    sketch_kept_s: how long caches may keep a sketch.
    asked: how often each `METHOD path` came in; the sketch's path without its query.
    values: what `/data/NAME` shows.
    fault: what befalls the sketch: "html", "unavailable", "fieldless", "replayed" (an old one, whatever is asked for),
        "off" (the kill switch).
    """

    def __init__(self, *, options: str = "{}", delta_s: int = 60) -> None:
        self.asked: Counter[str] = Counter()
        self.values: Counter[str] = Counter()
        self.fault = ""
        self.options = options
        self._delta_s = delta_s
        self.rules = "handles=/data/&handles=/me/"
        self.release = 1
        self.own = ""
        self.sketch_kept_s = 1
        self.url = ""
        self._sketch = MemoryCacheSketch()
        self._replayed: Response | None = None

    def write(self, name: str) -> None:
        """Act as another process: write, and let the change be detected."""
        self.values[name] += 1
        names = [resource(f"/{kind}/{name}".encode(), b"") for kind in ("data", "me")]
        asyncio.run(self._sketch.report_write(names, now_ms=_now_ms()))

    def keep_sketch(self, made_ms_ago: int) -> None:
        """The sketch that "replayed" answers with."""
        self._replayed = asyncio.run(self._snapshot(0, _now_ms() - made_ms_ago))

    async def page(self, request: Request) -> Response:
        return HTMLResponse(PAGE.replace("OPTIONS", self.options), headers={"cache-control": "no-store"})

    async def worker_page(self, request: Request) -> Response:
        return HTMLResponse(WORKER_PAGE.replace("RULES", self.rules), headers={"cache-control": "no-store"})

    async def own_page(self, request: Request) -> Response:
        """A page whose own script registers the site's worker, if the query requests it."""
        registered = "navigator.serviceWorker.register('/sw.js');" if "register" in request.query_params else ""
        page = OWN_PAGE.replace("RULES", self.rules).replace("REGISTERED", registered)
        return HTMLResponse(page, headers={"cache-control": "no-store"})

    async def own_worker(self, request: Request) -> Response:
        return Response(self.own, media_type="text/javascript", headers={"cache-control": "no-store"})

    async def built(self, request: Request) -> Response:
        """A built file; the worker's ends with a comment that names its release."""
        name = request.path_params["name"] + ".js"
        body = (BUILT / ("noop_worker.js" if name == "worker.js" and self.fault == "off" else name)).read_text()
        return Response(
            f"{body}/* release {self.release} */",
            media_type="text/javascript",
            headers={"cache-control": "no-store", "service-worker-allowed": "/"},
        )

    async def module(self, request: Request) -> Response:
        name = request.path_params["name"]
        if not (CLIENT / "src" / name).is_file():
            return Response(status_code=404)
        return Response(stripped(name), media_type="text/javascript", headers={"cache-control": "no-store"})

    async def data(self, request: Request) -> Response:
        name, user = request.path_params["name"], request.cookies.get("user", "nobody")
        self.asked[f"{request.method} {request.url.path}"] += 1
        if request.method == "PUT":
            await asyncio.to_thread(self.write, name)
            return Response(status_code=204)
        personal = request.url.path.startswith("/me/")
        at = _now_ms()
        body = json.dumps({"value": self.values[name], "user": user if personal else None}).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {
            "cache-control": "private, max-age=0, must-revalidate"
            if personal
            else "public, max-age=0, must-revalidate",
            "etag": tag,
        } | ({"vary": "cookie"} if personal else {})
        if not request.url.path.startswith("/plain/"):
            await self._sketch.report_read(
                resource(request.url.path.encode(), request.url.query.encode()), expires_at_ms=at + TTL_S * 1000 + 5000, now_ms=at
            )  # fmt: skip
            headers["quaestor-ttl"] = f"{TTL_S};at={at};sketch=all" + (";private" if personal else "")
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    async def session(self, request: Request) -> Response:
        answer = JSONResponse({})
        answer.set_cookie("user", request.path_params["user"])
        return answer

    async def sketch(self, request: Request) -> Response:
        self.asked[f"GET {request.url.path}"] += 1
        if self.fault == "html":
            return HTMLResponse("<p>Please log in")
        if self.fault == "unavailable":
            return Response("{}", 503, headers={"cache-control": "public, max-age=600"})
        if self.fault == "replayed" and self._replayed is not None:
            return self._replayed
        answer = await self._snapshot(int(request.query_params.get("nonce", "0")), _now_ms())
        if self.fault == "fieldless":
            del answer.headers["quaestor-sketch"]
        return answer

    async def _snapshot(self, nonce: int, made: int) -> Response:
        body = await self._sketch.snapshot(now_ms=made)
        field = (
            f"made={made}, delta={self._delta_s}"
            + (f", nonce={nonce}" if nonce else "")
            + (", off" if self.fault == "off" else "")
        )
        cached = "no-store" if nonce else f"public, max-age={self.sketch_kept_s}"
        headers = {
            "quaestor-sketch": field,
            "cache-control": cached,
            "etag": f'"{hashlib.sha256(body).hexdigest()[:16]}"',
        }
        return Response(body, media_type="application/octet-stream", headers=headers)

    def app(self) -> Starlette:
        """The ASGI application."""
        data = [Route(f"/{kind}/{{name}}", self.data, methods=["GET", "PUT"]) for kind in ("data", "me", "plain")]
        return Starlette(
            routes=[
                Route("/", self.page),
                Route("/src/{name}", self.module),
                Route("/worker-page", self.worker_page),
                Route("/own-page", self.own_page),
                Route("/sw.js", self.own_worker),
                Route("/quaestor/{name}.js", self.built),
                Route("/session/{user}", self.session, methods=["POST"]),
                Route("/quaestor/sketch", self.sketch),
                Route("/quaestor/sketch/all", self.sketch),
                *data,
            ]
        )


@contextlib.contextmanager
def serving(origin: Origin) -> Iterator[Origin]:
    """The application on a free port of the loopback interface; `url` is set."""
    config = uvicorn.Config(origin.app(), port=0, log_level="error", lifespan="off", ws="none")
    with served_by_uvicorn(config) as origin.url:
        yield origin


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
