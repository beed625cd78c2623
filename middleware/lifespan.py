"""Start and stop of a Quaestor with its app: around the app's own lifespan, or at the first request if there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from quaestor.errors import ConfigurationError, QuaestorError
from quaestor.gc_freezing import ease_once
from quaestor.middleware.interface import App, Engine, Message, Receive, Scope, Send
from quaestor.tasks import ended
from quaestor.thread_switching import switch_within

PATIENCE_S = 1.0
"""How long a request waits for the start; then it is answered without a cache."""
RETRY_MS = 5_000
"""How long after a failed start the next request may try again."""
_UNTIL_LOOPS_END: set[asyncio.Task[None]] = set()
"""Keeps the tasks that stop engines alive: an event loop does not, and an app may be dropped while its loop runs."""


class Lifespan:
    """Starts and stops an engine with its app.

    ready: the engine runs. The hit path reads only this field.
    shared_state: the state that the app puts into every request.
    before_stop: called after the app has stopped, before the engine stops.
    on_start: called once the engine runs.
    eases: relieve the garbage collector once the app has started (gc_freezing.py).
    """

    def __init__(
        self,
        engine: Engine,
        *,
        before_stop: Callable[[], Awaitable[None]],
        on_start: Callable[[], None] = lambda: None,
        eases: bool = False,
    ) -> None:
        self._engine = engine
        self._before_stop = before_stop
        self._on_start = on_start
        self._eases = eases
        self._starting: asyncio.Task[None] | None = None
        self._errands = engine.read_path.process.supervisor.errands("start")
        self._retry_at_ms = 0
        self._stopped = False
        self._until_loop_ends: asyncio.Task[None] | None = None
        self.ready = False
        self.shared_state: Mapping[str, Any] = {}

    async def run(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the `lifespan` scope: start before the app starts, stop after it has stopped.

        A wrong configuration stops the app from starting, with a message. A server that is down does not.
        """
        refused = False
        self.shared_state = scope.get("state", self.shared_state)

        async def receive_started() -> Message:
            nonlocal refused
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._stopped = False
                try:
                    await self._start()
                except ConfigurationError as error:
                    refused = True
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    raise
            return message

        async def send_stopped(message: Message) -> None:
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed", "lifespan.startup.failed"):
                if refused:
                    return
                await self._stop()
            elif self._eases and message["type"] == "lifespan.startup.complete":
                ease_once()
            await send(message)

        await app(scope, receive_started, send_stopped)

    async def ensure(self) -> None:
        """Start before a request if not ready, or go on without. Never raises; waits for PATIENCE_S at most."""
        now_ms = self._engine.read_path.clock()
        if self._starting is not None and self._starting.get_loop() is not asyncio.get_running_loop():
            self._starting = None  # its loop has ended, and the task with it
        if self._starting is None and not self._stopped and now_ms >= self._retry_at_ms:
            self._starting = self._errands.start(self._start_quietly())
        if self._starting is not None:
            await asyncio.wait((self._starting,), timeout=PATIENCE_S)

    async def _start_quietly(self) -> None:
        try:
            await self._start()
            if self.ready:
                self._until_loop_ends = asyncio.create_task(self._stop_with_loop(), name="quaestor-until-loop-ends")
                _UNTIL_LOOPS_END.add(self._until_loop_ends)
                self._until_loop_ends.add_done_callback(_UNTIL_LOOPS_END.discard)
        except asyncio.CancelledError:  # the event loop ends
            await self._engine.stop()
            raise
        except Exception as error:
            self._retry_at_ms = self._engine.read_path.clock() + RETRY_MS
            if not isinstance(error, QuaestorError):
                raise  # counted and logged with its stack
            self._engine.telemetry.failure("engine", "middleware.start_failed", error)
        finally:
            self._starting = None

    async def _stop_with_loop(self) -> None:
        """Stop the engine when the event loop ends and cancels its tasks: without a lifespan there is no other sign of the end.

        A loop that was closed without cancelling its tasks runs nothing any more, so the engine stays as it is.
        """
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self.ready:
                await self._stop()
                self._stopped = False
            raise

    async def _start(self) -> None:
        if self.ready:
            return
        try:
            await self._engine.start()
        except ConfigurationError:
            raise
        except QuaestorError as error:
            self._engine.telemetry.failure("engine", "middleware.start_failed", error)
            self._retry_at_ms = self._engine.read_path.clock() + RETRY_MS
            return
        self.ready = True
        switch_within(self._engine.settings.observability.switch_interval_ms)
        self._on_start()

    async def _stop(self) -> None:
        """Stop until the app's next lifespan; late requests are answered without a cache."""
        self._stopped = True
        await self._before_stop()
        if self.ready:
            self.ready = False
            await self._engine.stop()
        ending, self._until_loop_ends = self._until_loop_ends, None
        if ending is not asyncio.current_task():
            await ended((ending,))
