"""Run of a grid in the foreground, on Spark or as local processes, until it is stopped."""

from __future__ import annotations

import threading
from contextlib import suppress

from quaestor.errors import ConfigurationError, DependencyError
from quaestor.invalidation.grid.running_grid import RunningGrid
from quaestor.settings import Settings


def required_urls(settings: Settings) -> tuple[str, str]:
    """Return the URLs of Redis and of MongoDB, which a grid needs. Raises ConfigurationError that names the missing one."""
    if settings.redis_url is None or settings.mongo_url is None:
        missing = "REDIS_URL" if settings.redis_url is None else "MONGO_URL"
        raise ConfigurationError(f"the grid needs {missing}: set it to the server's URL")
    return settings.redis_url, settings.mongo_url


def run_grid(grid: RunningGrid, *, on: str, stop: threading.Event, ready_timeout_s: float = 120) -> None:
    """Start the grid, report it on stdout, and stop it when `stop` is set. Leaves no process behind.

    on: name of the platform of the tasks, for people.

    Raises ConfigurationError or DependencyError if the grid cannot be started, or ends by itself.
    """
    cells = len(grid.job.cells)
    _say(f"starting {on}")
    try:
        grid.start()
        _say(f"starting {cells} cells + ingest")
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
    with suppress(OSError):  # the reader of this output may be gone; that is no reason to leave processes behind
        print(f"quaestor grid: {text}", flush=True)
