"""Pending entry: an answer that was sent and is stored only after its handler has ended without a write."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Final

from quaestor.capture import Recorder
from quaestor.capture.left_behind import LeftBehind
from quaestor.middleware.delivery import Delivery
from quaestor.middleware.refresh import Refreshes
from quaestor.store.memory import Resident

_PATIENCE_S: Final = 0.05
"""How long other requests wait while the answer is sent or its handler goes on; then one of them runs its own handler."""
_LONGEST_WORK_S: Final = 30.0
"""How long tasks that a handler leaves behind delay storing its answer. A later write ends the entry."""


class PendingEntry:
    """Entry of one handler run, if its answer was admitted.

    verify: called after the entry was published; None: its answer is not verified.
    """

    def __init__(self, delivery: Delivery, refreshes: Refreshes) -> None:
        self.verify: Callable[[], None] | None = None
        self._delivery = delivery
        self._refreshes = refreshes
        self._admitted: Resident | None = None
        self._asked_ms = 0
        self._patience: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether there is an entry, neither published nor discarded."""
        return self._admitted is not None

    def hold(self, admitted: Resident, *, asked_ms: int, surroundings: contextvars.Context) -> None:
        """Hold an admitted entry. After a while other requests wait for it no longer.

        asked_ms: when the handler began.
        surroundings: context of the timer.
        """
        self._admitted, self._asked_ms = admitted, asked_ms
        self._patience = asyncio.get_running_loop().call_later(
            _PATIENCE_S, self._delivery.let_others_run, context=surroundings
        )

    async def publish(self, left: LeftBehind, recorder: Recorder) -> None:
        """Publish the entry once its handler has ended without a write. Tasks that the handler leaves behind are awaited in the
        background."""
        tasks = await left.tasks()
        if tasks:
            self._refreshes.beside(self._publish_after(tasks, recorder))
        else:
            await self._publish_unless_written(recorder)

    def discard(self) -> None:
        """Discard the entry of an answer that was sent: its handler writes, or was cancelled."""
        if self._patience is not None:
            self._patience.cancel()
        if (admitted := self._admitted) is not None:
            self._admitted = None
            self._delivery.withdraw(admitted)

    async def _publish_after(self, tasks: Sequence[asyncio.Task[Any]], recorder: Recorder) -> None:
        await asyncio.wait(tasks, timeout=_LONGEST_WORK_S)
        await self._publish_unless_written(recorder)

    async def _publish_unless_written(self, recorder: Recorder) -> None:
        if recorder.writes.attempted:
            self.discard()
        if self._patience is not None:
            self._patience.cancel()
        if (admitted := self._admitted) is not None:
            self._admitted = None
            await self._delivery.publish(admitted, asked_ms=self._asked_ms)
            if self.verify is not None:
                self.verify()
