"""Run of the grid on Spark in the foreground, until it is told to stop: what `quaestor cluster` does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing

from quaestor.cli.cluster_metrics import served
from quaestor.errors import ConfigurationError
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.resizing.state import get_state
from quaestor.model import GridShape
from quaestor.settings import Settings


def run(
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
    """Run the grid; returns when SIGINT or SIGTERM has stopped it.

    conf: Spark settings, `spark.name=value` each.
    metrics_port: where the grid's figures are served; listened on before anything is started. None: nowhere.

    Raises ConfigurationError (too few slots, no Java, no pyspark, no URL, a port in use), DependencyError (a part does not
    answer, or the grid has ended by itself).
    """
    try:
        from quaestor.invalidation.grid.spark.__main__ import run_grid
        from quaestor.invalidation.grid.spark.configuration import spark_settings
        from quaestor.invalidation.grid.spark.slots import default_master, require_slots
    except ImportError as error:
        raise ConfigurationError(f"the grid needs pyspark ({error}): pip install 'quaestor[spark]'") from error
    shape = GridShape(query_partitions=query_partitions, write_partitions=write_partitions)
    require_slots(master or default_master(shape), shape)
    chosen = spark_settings(conf)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as cleanup:
        if metrics_port is not None and settings.redis_url is not None:
            url = cleanup.enter_context(served(settings, host=metrics_host, port=metrics_port))
            print(f"quaestor grid: metrics at {url}", flush=True)
        run_grid(settings=settings, shape=shape, master=master, stop=stop, ready_timeout_s=ready_timeout_s, conf=chosen)


def require_resizable(settings: Settings, *, query_partitions: int, write_partitions: int) -> None:
    """Require that there is a grid that one with these partitions can take over from.

    Raises ConfigurationError if there is none, or if it has these partitions already; EventLayerError if Redis does not answer.
    """
    if settings.redis_url is None:
        raise ConfigurationError("the grid is known to Redis: pass --redis-url or set REDIS_URL")
    with closing(event_layer(settings.redis_url, settings.deployment)) as layer:
        state = get_state(layer, settings.deployment)
    if state is None:
        raise ConfigurationError(
            f"no grid was ever started in deployment {settings.deployment!r}: start one with quaestor cluster"
        )
    shape = state.serving.shape
    if (shape.query_partitions, shape.write_partitions) == (query_partitions, write_partitions):
        raise ConfigurationError(
            f"the grid of deployment {settings.deployment!r} has {query_partitions} query x {write_partitions} write "
            "partitions already"
        )
