"""The one line: `app.add_middleware(QuaestorMiddleware, quaestor=quaestor, cdn=[...])`. Pure ASGI.

Or, around everything else that a framework does for a request: `app = QuaestorMiddleware(app, quaestor=quaestor, cdn=[...])`.

__call__ is the hit path: from the request's bytes to an answer out of memory without an await but `send`. Whatever is not a plain
hit goes on to _closer_look(), and from there to an Exchange or straight to the app.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from middleware.exchange import Exchange, pass_by
from middleware.headers import HeaderPolicy
from middleware.interface import App, Engine, Receive, Scope, Send
from middleware.lifespan import Lifespan
from middleware.sketch_endpoint import SketchEndpoint
from quaestor.capture import not_recording
from quaestor.ports import CdnAdapter
from quaestor.read_path.key import target
from quaestor.read_path.policy import DEFAULT
from quaestor.read_path.request import NOTABLE, inspect


class QuaestorMiddleware:
    """Answers GET and HEAD from cache and keeps what handlers answer, for as long as the database stays as they read it.

    quaestor: started and stopped with the app's lifespan, or at the first request if the server has none.
    cdn: CDNs that may keep copies, because they are purged.
    sketch_path: where the Cache Sketch is served. metrics_path: where metrics are served; None: nowhere, because they tell
    strangers how busy a site is.
    """

    def __init__(
        self,
        app: App,
        *,
        quaestor: Engine,
        cdn: Sequence[CdnAdapter] = (),
        sketch_path: str = "/quaestor/sketch",
        metrics_path: str | None = None,
    ) -> None:
        self._app = app
        self._engine = quaestor
        self._read_path = quaestor.read_path
        self._clock = quaestor.read_path.clock
        self._resident = quaestor.read_path.resident
        self._outgoing = HeaderPolicy(quaestor.settings, cdn)
        self._purges = self._outgoing.purges
        self._lifespan = Lifespan(quaestor)
        self._sketch_path = sketch_path
        self._sketch = SketchEndpoint(quaestor)
        self._metrics_path = metrics_path
        self._count_hit = quaestor.telemetry.hit
        for adapter in cdn:
            quaestor.add_cdn(adapter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                return await self._lifespan.run(self._app, scope, receive, send)
            return await self._app(scope, receive, send)
        if not self._lifespan.ready:
            await self._lifespan.ensure()
        if scope["method"] == "GET":
            host = None
            for name, value in scope["headers"]:
                if NOTABLE[name]:
                    break
                if name == b"host":
                    if host is not None:
                        break
                    host = value
            else:
                path = scope.get("raw_path")
                wanted = target(scope["scheme"], host or b"", path, scope["query_string"]) if path else None
                if wanted is not None:
                    now_ms = self._clock()
                    resident = self._resident(wanted.key, now_ms)
                    # An entry that was never rendered is sent below, where its route's policy is known.
                    if (
                        resident is not None
                        and resident.rendered is not None
                        and (not self._purges or wanted.url in resident.urls)
                    ):
                        self._count_hit()
                        headers = self._outgoing.hit(resident, now_ms)
                        response = resident.response
                        # Fresh messages and a fresh list: whoever wraps us may change them.
                        await send(
                            {"type": "http.response.start", "status": response.status, "headers": headers.copy()}
                        )
                        return await send({"type": "http.response.body", "body": response.body})
        return await self._closer_look(scope, receive, send)

    async def _closer_look(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        method: str = scope["method"]
        if path == self._sketch_path:
            return await self._sketch(method, send)
        if path == self._metrics_path and method in ("GET", "HEAD"):
            return await self._serve_metrics(send, head=method == "HEAD")
        if method not in ("GET", "HEAD"):
            with not_recording():
                return await self._app(scope, receive, send)
        policy = DEFAULT
        facts = inspect(scope["headers"])
        reason = facts.bypass
        wanted = None
        if reason is None:
            raw_path = scope.get("raw_path") or quote(scope["path"], safe="/~!$&'()*+,;=:@").encode()
            wanted = target(scope["scheme"], facts.host, raw_path, scope["query_string"])
            if wanted is None:
                reason = "unkeyed"
            elif not self._read_path.serving(self._clock()):
                reason = "not-serving"
        if wanted is None or reason is not None:
            return await pass_by(
                self._app, self._read_path, self._outgoing, scope, receive, send, reason=reason or "unkeyed"
            )
        exchange = Exchange(
            self._app, self._read_path, self._outgoing,
            scope=scope, receive=receive, send=send, facts=facts, target=wanted, policy=policy,
        )  # fmt: skip
        return await exchange.run()

    async def _serve_metrics(self, send: Send, *, head: bool) -> None:
        self._engine.telemetry.count_hits()
        body = self._engine.telemetry.exposition()
        headers = [
            (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if head else body})
