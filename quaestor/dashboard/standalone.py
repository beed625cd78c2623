"""Dashboard as a program of its own: connected to a deployment's Redis, or only with a trace to try parameters on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import uvicorn

from quaestor.admin.problem_details import problem
from quaestor.admin.token import AdminToken
from quaestor.clock import system_clock
from quaestor.dashboard.app import DashboardApp, DashboardProcess, DashboardTokens, FolderViews
from quaestor.dashboard.applying import Applying
from quaestor.dashboard.canaries import Canaries
from quaestor.dashboard.channels import ChannelsView, maker_of_channels, maker_of_running
from quaestor.dashboard.continuous import ContinuousView
from quaestor.dashboard.dashboard import PATH
from quaestor.dashboard.live import LiveView
from quaestor.dashboard.reports import SharedReports
from quaestor.dashboard.what_if import WhatIf
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.middleware.interface import App, Receive, Scope, Send
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.redis import clients
from quaestor.settings import Settings
from quaestor.store.canary_reports import RedisCanaryReports
from quaestor.ttl.canary_watch import OwnReports
from quaestor.ttl.parameters import TtlParameters, tuning_of
from quaestor.ttl.published import PublishedParameters

if TYPE_CHECKING:
    from quaestor.continuous.administration import Administration

_HERE: Final = PATH.lstrip("/").encode() + b"/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Address at which the dashboard listens."""

    host: str
    port: int


def application(settings: Settings, *, token: AdminToken, traces: str, read_only: bool) -> App:
    """Program as one ASGI app; connects on the first look. Without a Redis nothing can be applied. Raises
    ConfigurationError.

    traces: names of recorded traces; `*` for any part.
    """
    telemetry = Telemetry()
    layer: EventLayer = MemoryEventLayer()
    redis = None
    if settings.redis_url is not None:
        layer = event_layer(settings.redis_url, settings.deployment)
        redis = clients.shared_client(settings.redis_url)
    published = PublishedParameters(layer, scope=settings.scope)
    applying = Applying(published, own=TtlParameters(default=tuning_of(settings.lifetimes)), clock=system_clock)
    shared = None if redis is None else SharedReports(redis, scope=settings.scope)
    reports = OwnReports() if redis is None else RedisCanaryReports(redis, scope=settings.scope)
    channels = maker_of_channels(settings.continuous, system_clock)
    running = maker_of_running(channels, settings.continuous, telemetry)
    what_if = WhatIf(traces, delta_s=settings.sketch.sketch_delta_s)
    canaries = Canaries(applying, reports, what_if, delta_ms=settings.sketch.sketch_delta_s * 1_000)
    looks_only = read_only or redis is None
    dashboard = DashboardApp(
        path=PATH,
        tokens=DashboardTokens(operators=() if looks_only else (token,), viewers=(token,) if looks_only else ()),
        live=LiveView(None, shared, applying, canaries, telemetry=telemetry, clock=system_clock),
        applying=applying,
        canaries=canaries,
        what_if=what_if,
        folder=FolderViews(
            queries=ContinuousView(_administration(settings), telemetry, system_clock),
            channels=ChannelsView(channels, running, system_clock),
        ),
        process=DashboardProcess(telemetry, system_clock),
    )

    async def end() -> None:
        await dashboard.stop()
        layer.close()
        if redis is not None:
            await redis.aclose()

    return _program(dashboard, end)


def _administration(settings: Settings) -> Callable[[], Administration] | None:
    """Return the maker of the administration of the folder in the settings; the libraries are loaded at its first call."""
    if not settings.continuous.continuous_folder:
        return None

    @cache
    def administration() -> Administration:
        from quaestor.continuous.hosting import administration_of

        return administration_of(settings.continuous)

    return administration


def serve(app: App, listen: Listen) -> None:
    """Serve until SIGINT or SIGTERM."""
    uvicorn.run(
        app, host=listen.host, port=listen.port, log_level="warning", lifespan="on", ws="none", server_header=False
    )


def _program(dashboard: DashboardApp, end: Callable[[], Awaitable[None]]) -> App:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _live(receive, send, end)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if dashboard.serves(path):
            return await dashboard(scope, receive, send)
        if path != "/":
            return await problem(send, 404, "There is nothing here.")
        headers = [(b"location", _HERE), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 307, "headers": headers})
        return await send({"type": "http.response.body", "body": b""})

    return call


async def _live(receive: Receive, send: Send, end: Callable[[], Awaitable[None]]) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await end()
            return await send({"type": "lifespan.shutdown.complete"})
        await send({"type": "lifespan.startup.complete"})
