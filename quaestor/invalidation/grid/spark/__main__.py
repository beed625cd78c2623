"""Command `python -m quaestor.invalidation.grid.spark`: run the grid until SIGTERM or SIGINT.

Settings come from the environment.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Annotated

import typer

from quaestor.errors import QuaestorError
from quaestor.invalidation.grid.foreground import required_urls, run_grid
from quaestor.invalidation.grid.spark.grid import SparkGrid
from quaestor.model import GridShape
from quaestor.settings import Settings


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
        settings = Settings.from_env()
        redis_url, mongo_url = required_urls(settings)
        grid = SparkGrid(master, shape=shape, redis_url=redis_url, mongo_url=mongo_url, settings=settings)
        run_grid(grid, on=f"Spark ({grid.master})", stop=stop)
    except QuaestorError as error:
        print(f"quaestor grid: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    typer.run(main)
