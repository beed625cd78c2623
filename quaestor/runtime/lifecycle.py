"""Start and stop of one Quaestor: its services begin in order, and end in the reverse order, whatever raises.

The stop is bounded. A step that raises, or takes longer than its share of the time, is counted and logged; the next step follows.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio.to_thread

from quaestor.capture.clients import WatchClient
from quaestor.invalidation.effects.manual import ManualInvalidation
from quaestor.runtime import services
from quaestor.runtime.channels import channels
from quaestor.runtime.continuous_queries import continuous_queries, table_filling
from quaestor.runtime.parts import Parts
from quaestor.runtime.services import Stop
from quaestor.runtime.settling import Settling
from quaestor.runtime.watching import Watching

STOP_S: Final = 20.0
"""Bound of a stop, as long as no step blocks the event loop itself."""
_STEP_S: Final = 5.0
_LEAST_STEP_S: Final = 0.2
"""Time of a step when the bound is spent."""

_SERVICES: Final = (
    *(services.invalidating, services.purging, services.purge_probes, services.registering, services.housekeeping),
    *(services.measuring, services.accounting, services.sketch_watching, services.recording, services.tuning),
    *(continuous_queries, channels),
)
_WATCHING: Final = (
    *(services.embedded_grid, services.elected_grid, services.catalog_polling),
    *(services.contributor_reading, services.rechecking, services.unreported_writing),
    table_filling,
)


class Lifecycle:
    """Life of the parts of one Quaestor. Use from one event loop at a time.

    settling: waits for writes to take effect.
    manual: invalidation on request; None while no database is watched.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._stops: list[tuple[str, Stop]] = []
        self._watched: WatchClient | None = None
        self._watching = Watching(parts, self._watch)
        self.settling = Settling(parts)
        self.manual: ManualInvalidation | None = None

    @property
    def runs(self) -> bool:
        """Whether it was started and not stopped."""
        return bool(self._stops)

    async def start(self) -> None:
        """Begin all services. If one raises, the begun services end, and the error is raised."""
        parts = self._parts
        self.settling.begin()
        parts.storage.layer.reopen()
        try:
            for service in _SERVICES:
                self._stops.append((service.__name__, await service(parts)))
            if parts.process.settings.grid.enabled:
                await self._watching.start()
        except BaseException:
            await self.stop()
            raise

    async def _watch(self, client: WatchClient) -> None:
        """Begin the services that need a database. If one raises, the begun services end, and the error is raised."""
        self._watched = client
        before = len(self._stops)
        try:
            for service in _WATCHING:
                self._stops.append((service.__name__, await service(self._parts, client)))
        except BaseException:
            await self._end(before, _Deadline(STOP_S))
            raise
        self.settling.watch(client)
        self.manual = services.manual_invalidation(self._parts, client)
        self._parts.process.telemetry.event("quaestor.watching")

    async def stop(self) -> None:
        """End all services, and close what was opened. Returns within STOP_S. Raises the caller's own cancellation alone."""
        parts, deadline = self._parts, _Deadline(STOP_S)
        self.settling.end()
        manual, self.manual = self.manual, None
        first: list[tuple[str, Stop]] = [("watching", self._watching.stop)]
        if manual is not None:
            first.append(("manual_invalidation", manual.aclose))
        first.append(("subscriptions", partial(_in_thread, parts.subscriptions.stop)))
        interrupted = [await self._step(name, end, deadline) for name, end in first]
        interrupted.append(await self._end(0, deadline))
        last: list[tuple[str, Stop]] = [("coalescing", parts.read_path.coalescing.settle)]
        last += [(f"cdn {adapter.name}", adapter.aclose) for adapter in parts.effects.cdn]
        last += [
            ("supervisor", parts.process.supervisor.aclose),
            ("event_layer", partial(_at_once, parts.storage.layer.close)),
        ]
        if parts.storage.redis is not None:
            last.append(("redis", parts.storage.redis.aclose))
        watched, self._watched = self._watched, None
        if watched is not None:
            last.append(("database", partial(_in_thread, watched.close)))
        interrupted += [await self._step(name, end, deadline) for name, end in last]
        for error in interrupted:
            if error is not None:
                raise error

    async def _end(self, kept: int, deadline: _Deadline) -> BaseException | None:
        """End all services but the first `kept`, the last one first."""
        interrupted: BaseException | None = None
        while len(self._stops) > kept:
            name, end = self._stops.pop()
            interrupted = await self._step(name, end, deadline) or interrupted
        return interrupted

    async def _step(self, name: str, end: Stop, deadline: _Deadline) -> BaseException | None:
        """End one service. Returns the caller's cancellation: the other services have to end first."""
        within_s = min(_STEP_S, max(_LEAST_STEP_S, deadline.left_s))
        try:
            async with asyncio.timeout(within_s):
                await end()
        except TimeoutError as error:
            self._failed(name, error, f"{name} did not end within {within_s:g} s")
        except Exception as error:
            self._failed(name, error, repr(error))
        except BaseException as error:
            return error
        return None

    def _failed(self, name: str, error: BaseException, text: str) -> None:
        stack = "".join(traceback.format_exception(error))
        self._parts.process.telemetry.failure("engine", "quaestor.stop_failed", text, service=name, stack=stack)


class _Deadline:
    """Moment at which the bound of a stop is over."""

    def __init__(self, within_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._at_s = self._loop.time() + within_s

    @property
    def left_s(self) -> float:
        return self._at_s - self._loop.time()


async def _at_once(close: Callable[[], object]) -> None:
    close()


async def _in_thread(close: Callable[[], object]) -> None:
    """Close what blocks. The thread is left alone when the time is over."""
    await anyio.to_thread.run_sync(close, abandon_on_cancel=True)
