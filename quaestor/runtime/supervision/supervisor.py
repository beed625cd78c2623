"""Supervisor of background work: services in tasks and threads, and short tasks ("errands") without a waiting caller.

A service that raises is counted, logged with its stack and restarted after a pause that grows. A service that returns has ended.
Supervision costs nothing while a service runs: each one waits in its own task or thread, and no part polls.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import anyio.to_thread

from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.service import Service, ServiceReport
from quaestor.tasks import ended

Answer = TypeVar("Answer")

STOP_S: Final = 5.0
"""Longest time for the stop of one service."""


class Supervisor:
    """Supervisor of the background work of one Quaestor, or of one process of a grid. Use from any thread.

    monotonic: clock in seconds.
    """

    def __init__(self, telemetry: Telemetry, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._services: dict[str, Service] = {}
        self._kept: set[KeptTask | KeptThread] = set()
        self._errands: weakref.WeakSet[Errands] = weakref.WeakSet()
        self._lock = threading.Lock()

    def keep(
        self,
        name: str,
        work: Callable[[], Awaitable[object]],
        *,
        on_failure: Callable[[BaseException], object] | None = None,
    ) -> KeptTask:
        """Run a service in a task of this event loop until it returns; restart it whenever it raises.

        on_failure: called after each failure, before the pause.
        """
        kept = KeptTask(self.service(name), work, on_failure, self._kept.discard)
        self._kept.add(kept)
        return kept

    def thread(
        self,
        name: str,
        body: Callable[[threading.Event], object],
        *,
        wake: Callable[[], object] | None = None,
    ) -> KeptThread:
        """Run a service in a thread until it returns; restart it whenever it raises.

        body: returns soon after its argument is set.
        wake: called at the stop, for a body that waits for something else.
        """
        kept = KeptThread(self.service(name), body, wake, self._kept.discard)
        self._kept.add(kept)
        kept.start()
        return kept

    def errands(self, name: str) -> Errands:
        """Short tasks of one service."""
        errands = Errands(self.service(name))
        self._errands.add(errands)
        return errands

    def service(self, name: str) -> Service:
        """The service of this name, also one that has ended."""
        with self._lock:
            service = self._services.get(name)
            if service is None:
                service = self._services[name] = Service(name, self._telemetry, self._monotonic)
            return service

    def reports(self) -> list[ServiceReport]:
        """Reports on all services, by name."""
        with self._lock:
            services = sorted(self._services.items())
        return [service.report for _, service in services]

    async def aclose(self, *, within_s: float = STOP_S) -> None:
        """End whatever runs yet. Returns within the bound; what has not ended by then is reported."""
        kept, errands = list(self._kept), list(self._errands)
        if kept or any(map(len, errands)):
            await asyncio.gather(*(part.aclose(within_s=within_s) for part in [*kept, *errands]))


class KeptTask:
    """A service in a task of an event loop."""

    def __init__(
        self,
        service: Service,
        work: Callable[[], Awaitable[object]],
        on_failure: Callable[[BaseException], object] | None,
        on_end: Callable[[KeptTask], object],
    ) -> None:
        self._service = service
        self._work = work
        self._on_failure = on_failure
        self._task = asyncio.create_task(self._keep(), name=f"quaestor-{service.name}", context=contextvars.Context())
        self._task.add_done_callback(lambda _: on_end(self))

    @property
    def done(self) -> bool:
        """Whether it has ended, or its event loop has."""
        return self._task.done() or self._task.get_loop().is_closed()

    async def aclose(self, *, within_s: float = STOP_S) -> None:
        """End the service. Returns within the bound."""
        await _ended_within(self._service, {self._task}, within_s)

    async def _keep(self) -> None:
        while (pause_s := await self._attempt()) is not None:
            self._service.pausing(True)
            try:
                await asyncio.sleep(pause_s)
            finally:
                self._service.pausing(False)

    async def _attempt(self) -> float | None:
        """Run the service once. Returns the pause before its restart; None: it has ended."""
        self._service.begun()
        try:
            await self._work()
        except asyncio.CancelledError as error:
            if _cancelled():
                raise
            return self._failed(error)  # nobody has cancelled this task: a library of the service did that
        except Exception as error:
            return self._failed(error)
        finally:
            self._service.over()
        return None

    def _failed(self, error: BaseException) -> float:
        pause_s = self._service.failed(error)
        if self._on_failure is not None:
            self._on_failure(error)
        return pause_s


class KeptThread:
    """A service in a thread."""

    def __init__(
        self,
        service: Service,
        body: Callable[[threading.Event], object],
        wake: Callable[[], object] | None,
        on_end: Callable[[KeptThread], object],
    ) -> None:
        self._service = service
        self._body = body
        self._wake = wake
        self._on_end = on_end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"quaestor-{service.name}", daemon=True)

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def tell(self) -> None:
        """Let the service end; returns at once."""
        self._stop.set()
        if self._wake is not None:
            self._wake()

    def stop(self, *, within_s: float = STOP_S) -> None:
        """End the service. Blocks until it has ended, within the bound."""
        self.tell()
        if self._thread is threading.current_thread():
            return
        self._thread.join(within_s)
        if self._thread.is_alive():
            self._service.did_not_end(within_s)

    async def aclose(self, *, within_s: float = STOP_S) -> None:
        """End the service. Returns within the bound."""
        await anyio.to_thread.run_sync(lambda: self.stop(within_s=within_s))

    def _keep(self) -> None:
        try:
            while (pause_s := self._attempt()) is not None:
                self._service.pausing(True)
                self._stop.wait(pause_s)
                self._service.pausing(False)
                if self._stop.is_set():
                    return
        finally:
            self._on_end(self)

    def _attempt(self) -> float | None:
        """Run the service once. Returns the pause before its restart; None: it has ended."""
        self._service.begun()
        try:
            self._body(self._stop)
        except BaseException as error:  # whatever ends a thread: nobody else would see it
            return self._service.failed(error)
        finally:
            self._service.over()
        return None


class Errands:
    """Short tasks of one service without a waiting caller. One that raises is counted and logged, and not restarted."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self, work: Coroutine[Any, Any, Answer], *, context: contextvars.Context | None = None
    ) -> asyncio.Task[Answer]:
        """Run work in a task of this event loop.

        context: of its variables; by default a copy of the caller's.
        """
        task = asyncio.create_task(work, name=f"quaestor-{self._service.name}", context=context)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def aclose(self, *, within_s: float = STOP_S) -> None:
        """Cancel the tasks of this event loop. Returns within the bound."""
        await _ended_within(self._service, set(self._tasks), within_s)

    def failed(self, error: BaseException) -> None:
        """Count and log what a task has caught."""
        self._service.errand_failed(error)

    async def finished(self) -> None:
        """Wait until the tasks of this event loop have ended by themselves."""
        loop = asyncio.get_running_loop()
        while here := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(here)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._service.errand_failed(error)


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _ended_within(service: Service, tasks: set[asyncio.Task[Any]], within_s: float) -> None:
    """Cancel tasks and wait until they are over, within the bound. The caller's own task is left alone."""
    tasks -= {asyncio.current_task()}
    try:
        async with asyncio.timeout(within_s):
            await ended(tasks)
    except TimeoutError:
        service.did_not_end(within_s)
