"""Server of `quaestor proxy`: ingress, admin API, cache and forwarder, on uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from quaestor.admin import AdminApi, AdminToken
from quaestor.admin.registered_urls import MemoryUrls, RedisUrls, RegisteredUrls
from quaestor.app import Quaestor
from quaestor.clock import Clock, system_clock
from quaestor.dashboard import Dashboard
from quaestor.errors import ConfigurationError
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App
from quaestor.model import CapturedRead
from quaestor.policy import RoutePolicy
from quaestor.proxy.forwarder import Forwarder
from quaestor.proxy.ingress import Ingress
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.protocol import ProxyProtocol
from quaestor.read_path.declared_dependencies import declared_reads
from quaestor.read_path.key import Target
from quaestor.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Address at which the proxy listens.

    certfile, keyfile: PEM files; both or none.
    """

    host: str
    port: int
    certfile: Path | None = None
    keyfile: Path | None = None


def application(
    options: ProxyOptions,
    settings: Settings,
    *,
    metrics: bool = False,
    token: AdminToken | None = None,
    dashboard: bool = False,
    clock: Clock = system_clock,
) -> App:
    """Whole proxy as one ASGI app.

    token: token of the admin API; None: there is no admin API. Raises ConfigurationError.
    dashboard: whether there is a dashboard too, for holders of the token.
    """
    quaestor = Quaestor(settings, clock=clock)
    urls: RegisteredUrls = MemoryUrls()
    if quaestor.redis is not None:
        urls = RedisUrls(quaestor.redis, deployment=settings.scope)

    def controls(target: Target, tags: Sequence[str]) -> Sequence[CapturedRead]:
        return declared_reads(
            RoutePolicy(explicit=True, tags=tuple(tags)),
            target,
            deployment=settings.scope,
            namespace=settings.store.control_namespace,
            since=quaestor.registry.watermark(),
        )

    forwarder = Forwarder(
        options, quaestor.telemetry, watermark=quaestor.registry.watermark, urls=urls, controls=controls
    )
    # An origin without a list of tracking parameters may answer differently for each of them.
    cache: App = QuaestorMiddleware(
        forwarder, quaestor=quaestor, metrics_path="/quaestor/metrics" if metrics else None, tracking=(), forwards=True,
        dashboard=Dashboard(token=token) if dashboard and token is not None else None,
    )  # fmt: skip
    if token is not None:
        cache = AdminApi(cache, quaestor=quaestor, token=token, urls=urls, database=options.database)
    return Ingress(cache, options, quaestor.telemetry)


def configuration(app: App, *, certfile: Path | None = None, keyfile: Path | None = None) -> uvicorn.Config:
    """Configuration of uvicorn for a proxy: adds nothing to answers, and trusts no forwarding field of a request."""
    return uvicorn.Config(
        app,
        http=ProxyProtocol,
        ws="none",
        loop="uvloop",
        lifespan="on",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=15,
        timeout_graceful_shutdown=10,
        ssl_certfile=certfile,
        ssl_keyfile=keyfile,
    )


def serve(app: App, listen: Listen, *, started: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    started: called with the URL once the socket listens.

    Raises ConfigurationError if nothing can listen at the address.
    """
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((listen.host, listen.port))
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                f"cannot listen on {listen.host}:{listen.port}: {error}; choose another --listen"
            ) from error
        scheme = "https" if listen.certfile is not None else "http"
        shown = f"[{listen.host}]" if family is socket.AF_INET6 else listen.host
        url = f"{scheme}://{shown}:{bound.getsockname()[1]}"
        server = _Server(configuration(app, certfile=listen.certfile, keyfile=listen.keyfile), lambda: started(url))
        server.run(sockets=[bound])
        if not server.started:
            raise ConfigurationError("the proxy could not be started; the reason is above")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, when_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_started = when_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._when_started()
