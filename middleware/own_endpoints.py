"""Endpoints of the middleware itself: Cache Sketch, browser client, dashboard, purge probe and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from quaestor.invalidation.effects.purge_probe import PATH as PROBE_PATH
from quaestor.middleware.browser_client import BrowserClient, ClientFiles
from quaestor.middleware.interface import Engine, Mountable, Receive, Scope, Send
from quaestor.middleware.purge_probe import PurgeProbeEndpoint
from quaestor.middleware.sketch_endpoint import SketchEndpoint
from quaestor.ports import CdnAdapter

Endpoint = Callable[[], Awaitable[None]]


class OwnEndpoints:
    """Endpoints of one middleware. Requests to them never reach the app.

    sketch: serves the Cache Sketch.
    dashboard: None: there is none.
    """

    def __init__(
        self,
        engine: Engine,
        cdn: Sequence[CdnAdapter],
        *,
        sketch_path: str,
        metrics_path: str | None,
        browser_client: BrowserClient | None,
        dashboard: Mountable | None,
    ) -> None:
        self.sketch = SketchEndpoint(engine, sketch_path)
        self.dashboard = None if dashboard is None else dashboard.mounted(engine)
        self._client_files = None if browser_client is None else ClientFiles(browser_client, engine)
        self._purge_probe = PurgeProbeEndpoint(engine, tuple(cdn))
        self._probe_path = PROBE_PATH if cdn else None
        self._metrics_path = metrics_path
        self._telemetry = engine.telemetry

    def of(self, scope: Scope, path: str, receive: Receive, send: Send) -> Endpoint | None:
        """Return the endpoint of a path; None: the request is the app's."""
        if self.sketch.serves(path):
            return partial(self.sketch, scope, path, send)
        if self._client_files is not None and path in self._client_files:
            return partial(self._client_files, path, scope, send)
        if self.dashboard is not None and self.dashboard.serves(path):
            return partial(self.dashboard, scope, receive, send)
        if path == self._probe_path:
            return partial(self._purge_probe, scope["method"], send)
        if path == self._metrics_path and scope["method"] in ("GET", "HEAD"):
            return partial(self._serve_metrics, send, head=scope["method"] == "HEAD")
        return None

    def begin(self) -> None:
        """Begin the dashboard's work."""
        if self.dashboard is not None:
            self.dashboard.begin()

    async def stop(self) -> None:
        """End the dashboard's work."""
        if self.dashboard is not None:
            await self.dashboard.stop()

    async def _serve_metrics(self, send: Send, *, head: bool) -> None:
        self._telemetry.requests.flush()
        body = self._telemetry.exposition()
        headers = [
            (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if head else body})
