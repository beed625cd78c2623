"""Child processes of the demo, ready to be started: app workers, live page, replay, Spark grid, Varnish before the app."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from quaestor.cdn_adapters import varnish_vcl
from quaestor.demo import replay, servers
from quaestor.demo.servers import HOST, Server
from quaestor.model import GridShape

_DEMO_SHAPE: Final = GridShape(query_partitions=2, write_partitions=2)


def grid_server(
    folder: Path,
    *,
    deployment: str,
    redis_url: str,
    mongo_url: str,
    shape: GridShape = _DEMO_SHAPE,
    settings: Mapping[str, str] | None = None,
) -> Server:
    """The matching grid on Spark, 2 x 2 cells unless told otherwise, and ingest; ready when ingest feeds every cell.

    settings: QUAESTOR_... variables.
    """
    environment = {"MONGO_URL": mongo_url, "REDIS_URL": redis_url} | dict(settings or {})
    server = Server(
        "Spark grid",
        [
            sys.executable, "-m", "quaestor.invalidation.grid.spark",
            "--query-partitions", str(shape.query_partitions), "--write-partitions", str(shape.write_partitions),
        ],
        folder,
        0,
        "",
        ready=lambda: "cells + ingest running" in server.log_tail(),
        environment=environment | {"QUAESTOR_DEPLOYMENT": deployment},
    )  # fmt: skip
    return server


def app_server(folder: Path, *, port: int, workers: int, environment: dict[str, str]) -> Server:
    """The app's workers."""
    return _python_server(
        folder,
        "app",
        _uvicorn("quaestor.demo.flights_app:create_app", port, workers=workers),
        port=port,
        path="/airlines",
        environment=environment,
    )


def live_server(folder: Path, *, port: int, environment: dict[str, str]) -> Server:
    """The live page's server."""
    return _python_server(
        folder,
        "live page",
        _uvicorn("quaestor.demo.live:create_app", port, workers=1),
        port=port,
        path="/totals",
        environment=environment,
    )


def varnish_server(folder: Path, *, port: int, app_port: int) -> Server:
    """Varnish in front of the app, configured as VarnishAdapter expects."""
    return servers.varnish_server(folder, varnish_vcl(HOST, app_port), port=port)


def _python_server(
    folder: Path, name: str, arguments: Sequence[str], *, port: int, path: str, environment: dict[str, str]
) -> Server:
    """A Python process that answers `GET path` on port once it is ready, not started yet."""
    url = f"http://{HOST}:{port}"

    def ready() -> bool:
        connection = http.client.HTTPConnection(HOST, port, timeout=2)
        try:
            connection.request("GET", path)
            return connection.getresponse().status < 500
        finally:
            connection.close()

    return Server(name, [sys.executable, *arguments], folder, port, url, ready, environment)


def _uvicorn(factory: str, port: int, *, workers: int) -> list[str]:
    return [
        "-m", "uvicorn", "--factory", factory, "--host", HOST, "--port", str(port), "--workers", str(workers),
        "--log-level", "warning", "--no-access-log", "--timeout-graceful-shutdown", "2", "--timeout-keep-alive", "60",
    ]  # fmt: skip


def replay_process(folder: Path, *, mongo_url: str, database: str, speed: float, laps: int) -> Server:
    """The replay by its file name, not as a part of the package: it is somebody else's program. -P: nor its neighbours."""
    arguments = [
        sys.executable, "-P", replay.__file__, mongo_url, database, "--speed", str(speed), "--laps", str(laps)
    ]  # fmt: skip
    return Server("replay", arguments, folder, 0, "", ready=lambda: True)
