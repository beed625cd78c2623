"""A miss waiting for its registrations: resolved from the notification thread, awaited on the event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from quaestor.model import Activated, Cell


@dataclass(slots=True)
class Activation:
    """Registrations of one response, waiting for the cells of their columns."""

    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[float]
    missing: set[tuple[str, Cell]]
    rate_hz: float = 0.0

    def observe(self, activated: Activated) -> None:
        """One cell has answered; the last one releases the miss."""
        self.rate_hz += activated.write_rate_hz
        self.missing.discard((activated.registration_id, activated.cell))
        if not self.missing:
            self.finish()

    def finish(self, error: Exception | None = None) -> None:
        def conclude() -> None:
            if self.done.done():
                return
            if error is None:
                self.done.set_result(self.rate_hz)
            else:
                self.done.set_exception(error)

        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(conclude)
