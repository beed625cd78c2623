"""Settling of claims: the dependency index learns which claims have all their effects done.

No caller waits for it, so claims that end within a moment go in one call. If a process dies before, another process takes over
its claims, like claims whose effects were not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from quaestor.errors import StoreError
from quaestor.invalidation.effects.until_done import until_done
from quaestor.model import Dependent
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import DependencyIndex
from quaestor.runtime.supervision.supervisor import KeptTask, Supervisor

LATER_S: Final = 0.05
"""Longest time for which claims are collected."""
_AT_ONCE: Final = 500
"""Claims in one call: keeps a script in Redis to a few milliseconds."""


class Settling:
    """Settling of one process's claims. Use from one event loop."""

    def __init__(self, index: DependencyIndex, telemetry: Telemetry, supervisor: Supervisor | None = None) -> None:
        self._supervisor = supervisor or Supervisor(telemetry)
        self._index = index
        self._telemetry = telemetry
        self._waiting: list[Dependent] = []
        self._task: KeptTask | None = None

    def later(self, dependents: Sequence[Dependent]) -> None:
        """Settle these claims within a moment."""
        self._waiting += dependents
        if self._waiting and (self._task is None or self._task.done):
            self._task = self._supervisor.keep("settling", self._settle)

    async def stop(self) -> None:
        """Settle the waiting claims in one attempt, and end."""
        if self._task is not None:
            await self._task.aclose()
        waiting, self._waiting = self._waiting, []
        with suppress(StoreError):  # another process takes them over
            await self._index.settle(waiting)

    async def _settle(self) -> None:
        await asyncio.sleep(LATER_S)
        while some := self._waiting[:_AT_ONCE]:
            await until_done(self._telemetry, "store", partial(self._index.settle, some))
            del self._waiting[: len(some)]
        self._task = None
