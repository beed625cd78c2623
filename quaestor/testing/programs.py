"""Processes of a deployment, ready to start: the matching grid on Spark, programs under uvicorn, Varnish before them."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from quaestor.cdn_adapters import varnish_vcl
from quaestor.model import GridShape
from quaestor.testing import servers
from quaestor.testing.servers import HOST, Server

DEFAULT_SHAPE: Final = GridShape(query_partitions=2, write_partitions=2)


def grid_server(
    folder: Path,
    *,
    deployment: str,
    redis_url: str,
    mongo_url: str,
    shape: GridShape = DEFAULT_SHAPE,
    settings: Mapping[str, str] | None = None,
) -> Server:
    """Return the matching grid on Spark with its ingest, not started yet. The server is ready when ingest feeds every cell.

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


def python_server(
    folder: Path, name: str, arguments: Sequence[str], *, port: int, path: str, environment: dict[str, str]
) -> Server:
    """Return a Python process, not started yet. The server is ready when `GET path` answers without a 5xx status."""
    url = f"http://{HOST}:{port}"

    def ready() -> bool:
        connection = http.client.HTTPConnection(HOST, port, timeout=2)
        try:
            connection.request("GET", path)
            return connection.getresponse().status < 500
        finally:
            connection.close()

    return Server(name, [sys.executable, *arguments], folder, port, url, ready, environment)


def uvicorn_arguments(factory: str, port: int, *, workers: int) -> list[str]:
    """Return the arguments of Python that run an application factory under uvicorn."""
    return [
        "-m", "uvicorn", "--factory", factory, "--host", HOST, "--port", str(port), "--workers", str(workers),
        "--log-level", "warning", "--no-access-log", "--timeout-graceful-shutdown", "2", "--timeout-keep-alive", "60",
    ]  # fmt: skip


def varnish_before(folder: Path, *, port: int, app_port: int) -> Server:
    """Return a Varnish before an application, not started yet. Its VCL is the one that VarnishAdapter expects."""
    return servers.varnish_server(folder, varnish_vcl(HOST, app_port), port=port)
