"""State of a running site that has to return to where it began: its gauges, and the tasks of its event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.live.socket_site import Site


def measured(site: Site, name: str, **labels: str) -> float:
    """The present value of a metric, without `quaestor_`; 0 before its first value."""
    return site.quaestor.telemetry.families.registry.get_sample_value(f"quaestor_{name}", labels) or 0


def open_now(site: Site) -> tuple[float, float]:
    """Sockets and subscriptions, as the gauges count them."""
    return measured(site, "live_connections"), measured(site, "live_subscriptions")


def tasks_of(site: Site) -> Counter[str]:
    """Tasks of the site's event loop, by their function, without those of the database's driver."""

    async def counted() -> Counter[str]:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        return Counter(_function(task) for task in tasks if task is not None and not _is_of_the_driver(task))

    return asyncio.run_coroutine_threadsafe(counted(), site.loops[0]).result(20)


def left_of(site: Site, before: Counter[str]) -> Counter[str]:
    """Tasks that the site has beyond those of an earlier count."""
    return tasks_of(site) - before


@contextmanager
def server_errors() -> Iterator[list[str]]:
    """Exceptions that leave the application, as uvicorn logs them, while the block lasts."""
    errors: list[str] = []

    class Errors(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("Exception in ASGI"):
                errors.append(self.format(record))

    handler, logger = Errors(), logging.getLogger("uvicorn.error")
    logger.addHandler(handler)
    try:
        yield errors
    finally:
        logger.removeHandler(handler)


def _function(task: asyncio.Task[Any]) -> str:
    """The function that a task runs. anyio wraps it, and names the task after it."""
    name = task.get_name()
    return getattr(task.get_coro(), "__qualname__", "") if name.startswith("Task-") else name


def _is_of_the_driver(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and "/pymongo/" in code.co_filename
