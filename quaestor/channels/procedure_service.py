"""Service of periodic procedures: executes each at the instants of its period. Owned by the supervisor of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from quaestor.channels.definitions import Definitions, State
from quaestor.channels.interpreter import Interpreter
from quaestor.channels.procedures import Procedures, Repeated
from quaestor.channels.statements.model import CreateProcedure, Kind
from quaestor.clock import Clock, system_clock
from quaestor.continuous.schedule.periods import Every
from quaestor.errors import QuaestorError
from quaestor.observability.telemetry import Telemetry

MOST_AT_ONCE: Final = 8
"""Procedures that execute at the same time, each in a thread of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcedureParts:
    """Parts of the service. pause: waits for some seconds."""

    definitions: Definitions
    procedures: Procedures
    interpreter: Interpreter
    telemetry: Telemetry
    clock: Clock = system_clock
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


class ProcedureService:
    """Executions of periodic procedures.

    look_s: seconds between two looks at what is due.

    An execution that fails is reported, and the next instant follows. An execution that takes longer than its period leaves the
    missed instants out. No procedure delays another one, up to MOST_AT_ONCE.
    """

    def __init__(self, parts: ProcedureParts, *, look_s: float = 1.0) -> None:
        self._parts = parts
        self._look_s = look_s
        self._executing: set[str] = set()
        self._threads: anyio.CapacityLimiter | None = None

    async def keep_running(self) -> None:
        """Execute procedures until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self.step(tasks)
                await self._parts.pause(self._look_s)

    async def run_due(self) -> None:
        """Execute what is due now, and return when all of it has ended."""
        async with asyncio.TaskGroup() as tasks:
            await self.step(tasks)

    async def step(self, tasks: asyncio.TaskGroup) -> None:
        """Begin what is due."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(MOST_AT_ONCE)
        try:
            due = await asyncio.to_thread(self._due)
        except QuaestorError as error:
            self._parts.telemetry.failure("channels", "channels.definitions_unread", error)
            return
        for repeated, period_us in due:
            if repeated.name not in self._executing:
                self._executing.add(repeated.name)
                work = partial(self._execute, repeated, period_us)
                tasks.create_task(self._in_thread(repeated.name, work, self._threads))

    def _due(self) -> list[tuple[Repeated, int]]:
        """Return the executions that are due, each with its period."""
        now, due = self._now(), []
        for repeated in self._parts.procedures.all():
            if repeated.due > now:
                continue
            definition = self._parts.definitions.find(Kind.PROCEDURE, repeated.name)
            if definition is None or definition.state is not State.READY or definition.created != repeated.created:
                continue
            statement = definition.statement
            assert isinstance(statement, CreateProcedure)
            if statement.period_us is not None:
                due.append((repeated, statement.period_us))
        return due

    async def _in_thread(self, name: str, work: Callable[[], None], threads: anyio.CapacityLimiter) -> None:
        """Execute a procedure once. Raises nothing that a procedure can cause."""
        try:
            await anyio.to_thread.run_sync(work, limiter=threads)
        except Exception as error:  # a procedure must not end the others, whatever an engine raises
            self._parts.telemetry.failure("channels", "channels.procedure_failed", error, procedure=name)
        finally:
            self._executing.discard(name)

    def _execute(self, repeated: Repeated, period_us: int) -> None:
        procedures, now = self._parts.procedures, self._now()
        if not procedures.take(repeated, now=now, following=Every(period_us).next(now)):
            return
        try:
            self._parts.interpreter.execute_once(repeated.statement, user=repeated.user)
        except Exception as error:
            procedures.note_error(repeated.name, now, str(error))
            raise
        procedures.note_error(repeated.name, now, "")

    def _now(self) -> int:
        return self._parts.clock() * 1_000
