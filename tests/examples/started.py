"""Processes of an example."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from quaestor.testing import servers
from quaestor.testing.servers import HOST, Server

READY_S = 240.0
"""A machine with much to do takes its time."""


@contextmanager
def process(
    folder: Path,
    name: str,
    arguments: Sequence[str],
    *,
    port: int = 0,
    ready: Callable[[Server], bool] | None = None,
    **environment: str,
) -> Iterator[Server]:
    """Start a process in a folder of its own. The process is ready when it answers at its port, or when `ready` returns true."""

    def answers() -> bool:
        return httpx.get(server.url, timeout=2).status_code < 500

    (place := folder / name).mkdir()
    server = Server(name, arguments, place, port, f"http://{HOST}:{port}", answers, environment)
    if ready is not None:
        server.ready = lambda: ready(server)
    server.start(READY_S)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def uvicorn(folder: Path, app: str, *arguments: str, **environment: str) -> Iterator[str]:
    """URL of an app that uvicorn serves."""
    port = servers.free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        app,
        "--host",
        HOST,
        "--port",
        str(port),
        "--log-level",
        "warning",
        *arguments,
    ]
    with process(folder, "app", command, port=port, **environment) as server:
        yield server.url
