"""Command `python -m quaestor.invalidation.grid.spark`: run the grid until SIGTERM or SIGINT.

Settings come from the environment.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

import typer

from quaestor.errors import ConfigurationError, DependencyError, QuaestorError
from quaestor.invalidation.grid.spark.grid import SparkGrid
from quaestor.model import GridShape
from quaestor.settings import Settings


def run_grid(
    *,
    settings: Settings,
    shape: GridShape,
    master: str | None = None,
    stop: threading.Event,
    ready_timeout_s: float = 120,
    conf: Mapping[str, str] | None = None,
) -> None:
    """Start the grid, say so on stdout, and stop it when `stop` is set. Leaves no JVM and no Python worker behind.

    conf: further Spark settings.

    Raises ConfigurationError or DependencyError if it cannot be started, or ends by itself.
    """
    if settings.redis_url is None or settings.mongo_url is None:
        missing = "REDIS_URL" if settings.redis_url is None else "MONGO_URL"
        raise ConfigurationError(f"the grid on Spark needs {missing}: set it to the server's URL")
    grid = SparkGrid(
        master, shape=shape, redis_url=settings.redis_url, mongo_url=settings.mongo_url, settings=settings, conf=conf
    )
    cells = len(grid.job.cells)
    _say(f"starting Spark ({grid.master})")
    try:
        grid.start()
        _say(f"Spark is up; starting {cells} cells + ingest")
        if grid.wait_ready(ready_timeout_s, progress=lambda n: _say(f"{n} of {cells} cells"), stop=stop):
            _say(f"{cells} cells + ingest running")
        while not stop.wait(0.2):
            if grid.wait(0):
                raise DependencyError(f"the grid has ended: {grid.error}")
    finally:
        _say("stopping")
        grid.stop()
    _say("stopped")


def _say(text: str) -> None:
    with suppress(OSError):  # whoever read this may be gone; that is no reason to leave processes behind
        print(f"quaestor grid: {text}", flush=True)


def main(
    query_partitions: Annotated[int, typer.Option(min=1, help="Query partitions of the grid.")] = 2,
    write_partitions: Annotated[int, typer.Option(min=1, help="Write partitions of the grid.")] = 2,
    master: Annotated[str | None, typer.Option(help="Spark master; default: two executors on this machine.")] = None,
) -> None:
    """Run the matching grid on Spark for the deployment that MONGO_URL, REDIS_URL and QUAESTOR_* describe."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    shape = GridShape(query_partitions=query_partitions, write_partitions=write_partitions)
    try:
        run_grid(settings=Settings.from_env(), shape=shape, master=master, stop=stop)
    except QuaestorError as error:
        print(f"quaestor grid: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    typer.run(main)
