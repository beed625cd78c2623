"""Work of `quaestor statistics`: run the job in the foreground, maintain the tables."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError
from quaestor.event_layer import streams
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.lease import Lease
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import Supervisor
from quaestor.settings import Settings
from quaestor.statistics.options import StatisticsOptions
from quaestor.tables.filled import filled_tables


def options(
    settings: Settings, directory: Path, *, windows_s: str, trigger_s: float, lateness_s: int, keep_days: int
) -> StatisticsOptions:
    """Return the options of the job. Raises ConfigurationError with the remedy."""
    return StatisticsOptions(
        redis_url=redis_url(settings),
        deployment=settings.deployment,
        directory=directory.absolute(),
        windows_s=lengths(windows_s),
        trigger_s=trigger_s,
        lateness_s=lateness_s,
        keep_days=keep_days,
    )


def redis_url(settings: Settings) -> str:
    """Return the URL of the event layer's Redis. Raises ConfigurationError if there is none."""
    if settings.redis_url is None:
        raise ConfigurationError("statistics are made from the event layer in Redis: pass --redis-url or set REDIS_URL")
    return settings.redis_url


def lengths(text: str) -> tuple[int, ...]:
    """Return the lengths of windows, from `10,60`. Raises ConfigurationError."""
    try:
        return tuple(sorted({int(length) for length in text.split(",")}))
    except ValueError as error:
        raise ConfigurationError(f"windows are lengths in seconds like 10,60, not {text!r}") from error


def run(options: StatisticsOptions, *, master: str | None, settings: Settings | None = None) -> None:
    """Run the job; return when SIGINT or SIGTERM has stopped it. Raises ConfigurationError, DependencyError.

    settings: may name tables that the job fills from collections beside its own work.
    """
    try:
        from quaestor.statistics.job import StatisticsJob
        from quaestor.statistics.session import DEFAULT_MASTER
    except ImportError as error:
        raise ConfigurationError(f"statistics need pyspark ({error}): pip install 'quaestor[spark]'") from error
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    telemetry = Telemetry()
    with ExitStack() as closing:
        filled = settings is not None and settings.tables.filled_tables
        beside = _filling(settings, telemetry, closing) if settings is not None and filled else None
        StatisticsJob(options, master=master or DEFAULT_MASTER, telemetry=telemetry, beside=beside).run(stop)


def _filling(settings: Settings, telemetry: Telemetry, closing: ExitStack) -> Callable[[threading.Event], object]:
    """Return the filling of tables, under the same lease as the filling in the processes of the app."""
    folder = settings.continuous.continuous_folder
    if settings.mongo_url is None or not folder:
        raise ConfigurationError(
            "filled tables need a MongoDB and a folder: set MONGO_URL and QUAESTOR_CONTINUOUS_FOLDER"
        )
    from quaestor.tables.catalogue import Catalogue
    from quaestor.tables.filling import LEASE_S, Filling, FillingParts

    layer = event_layer(redis_url(settings), settings.deployment)
    lease = Lease(layer, streams.filler(settings.deployment), lease_s=LEASE_S)
    closing.callback(lease.end)
    client = closing.enter_context(
        MongoClient[dict[str, Any]](settings.mongo_url, appname="quaestor", datetime_conversion="DATETIME_AUTO")
    )
    parts = FillingParts(
        client=client,
        catalogue=Catalogue(Path(folder)),
        telemetry=telemetry,
        supervisor=Supervisor(telemetry),
        held=lease.held,
        keep_days=settings.tables.table_days,
    )
    return Filling(filled_tables(settings.tables.filled_tables), parts).run


def compact(directory: Path, *, keep_days: int) -> str:
    """Maintain both tables once; return the result as JSON. Raises ConfigurationError, DependencyError."""
    try:
        from quaestor.tables.maintenance import maintain
    except ImportError as error:
        raise ConfigurationError(f"compaction needs pyarrow ({error}): pip install 'quaestor[spark]'") from error
    from quaestor.tables.log import Table

    options = StatisticsOptions(redis_url="", deployment="", directory=directory, keep_days=keep_days)
    done = {
        root.name: asdict(
            maintain(
                Table(root),
                file_bytes=options.file_bytes,
                keep_days=keep_days,
                grace_s=options.grace_s,
                now_ms=system_clock(),
            )
        )
        for root in (options.history, options.windows)
    }
    return json.dumps(done)
