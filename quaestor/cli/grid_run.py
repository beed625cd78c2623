"""Run of the grid in the foreground until a signal stops it, for `quaestor cluster` and `quaestor grid`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing

from quaestor.cli.cluster_metrics import served
from quaestor.errors import ConfigurationError
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.foreground import required_urls, run_grid
from quaestor.invalidation.grid.process_grid import ProcessGrid
from quaestor.invalidation.grid.resizing.state import get_state
from quaestor.invalidation.grid.running_grid import RunningGrid
from quaestor.model import GridShape
from quaestor.settings import Settings


def run_on_spark(
    settings: Settings,
    *,
    master: str | None,
    query_partitions: int,
    write_partitions: int,
    ready_timeout_s: float,
    conf: Sequence[str] = (),
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
) -> None:
    """Run the grid on Spark; returns when SIGINT or SIGTERM has stopped it.

    conf: Spark settings, `spark.name=value` each.
    metrics_port: port of the grid's metrics, opened before anything is started. None: no metrics.

    Raises ConfigurationError for too few slots, no Java, no pyspark, no URL or a port in use. Raises DependencyError if a part
    does not answer, or if the grid has ended by itself.
    """
    try:
        from quaestor.invalidation.grid.spark import SparkGrid
        from quaestor.invalidation.grid.spark.configuration import spark_settings
    except ImportError as error:
        raise ConfigurationError(f"the grid needs pyspark ({error}): pip install 'quaestor[spark]'") from error
    redis_url, mongo_url = required_urls(settings)
    grid = SparkGrid(
        master,
        shape=GridShape(query_partitions=query_partitions, write_partitions=write_partitions),
        redis_url=redis_url,
        mongo_url=mongo_url,
        settings=settings,
        conf=spark_settings(conf),
    )
    _run(grid, settings, f"Spark ({grid.master})", ready_timeout_s, metrics_port, metrics_host)


def run_as_processes(
    settings: Settings,
    *,
    query_partitions: int,
    write_partitions: int,
    ready_timeout_s: float,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
) -> None:
    """Run the grid with a local process for each task. Raises the same as run_on_spark, except errors of Java and Spark."""
    redis_url, mongo_url = required_urls(settings)
    shape = GridShape(query_partitions=query_partitions, write_partitions=write_partitions)
    grid = ProcessGrid(shape, redis_url=redis_url, mongo_url=mongo_url, settings=settings)
    _run(grid, settings, f"{grid.job.tasks} processes", ready_timeout_s, metrics_port, metrics_host)


def _run(
    grid: RunningGrid, settings: Settings, on: str, ready_timeout_s: float, metrics_port: int | None, metrics_host: str
) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as cleanup:
        if metrics_port is not None:
            url = cleanup.enter_context(served(settings, host=metrics_host, port=metrics_port))
            print(f"quaestor grid: metrics at {url}", flush=True)
        run_grid(grid, on=on, stop=stop, ready_timeout_s=ready_timeout_s)


def require_resizable(settings: Settings, *, query_partitions: int, write_partitions: int) -> None:
    """Require a running grid from which a grid with these partitions can take over.

    Raises ConfigurationError if there is none, or if it has these partitions already; EventLayerError if Redis does not answer.
    """
    if settings.redis_url is None:
        raise ConfigurationError("the grid is known to Redis: pass --redis-url or set REDIS_URL")
    with closing(event_layer(settings.redis_url, settings.deployment)) as layer:
        state = get_state(layer, settings.deployment)
    if state is None:
        raise ConfigurationError(
            f"no grid was ever started in deployment {settings.deployment!r}: start one with quaestor grid or quaestor cluster"
        )
    shape = state.serving.shape
    if (shape.query_partitions, shape.write_partitions) == (query_partitions, write_partitions):
        raise ConfigurationError(
            f"the grid of deployment {settings.deployment!r} has {query_partitions} query x {write_partitions} write "
            "partitions already"
        )
