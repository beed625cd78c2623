"""Null registry, for when there is no database to watch: the cache lives on what origins say of their answers alone (RFC 9111).

Nothing can be registered, so nothing that depends on a query is ever stored; everything else is always good to serve.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.errors import RegistrationRefusedError
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.held_registrations import HeldRegistrations
from quaestor.invalidation.registry.notification_reader import NotificationReader
from quaestor.invalidation.registry.registry import new_origin
from quaestor.invalidation.registry.usage_reports import Served
from quaestor.invalidation.registry.validity import Validity
from quaestor.invalidation.registry.write_progress import WriteProgress
from quaestor.model import CapturedRead, GridShape, Invalidated, Notification, Renewed, Version
from quaestor.ports import EventLayer, Registered
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.runtime.supervision.supervisor import KeptThread


class InvalidationListener:
    """Implements NotificationTaker for a process without a grid: of what is told, only invalidations and resets concern it, and
    of what its owner rechecks only what dies.

    origin: of this process.
    """

    def __init__(self, process: ProcessContext, consequences: Consequences, *, origin: str) -> None:
        self._clock = process.clock
        self._consequences = consequences
        self._validity = Validity()
        self._held = HeldRegistrations(
            self._validity,
            origin=origin,
            limit_ms=2 * process.settings.grid.recheck_ms,
            clock=process.clock,
        )

    def take(self, notifications: Sequence[Notification], *, complete: bool) -> None:
        """Hand on the invalidations among these, but of what its owner rechecks only those that stay."""
        invalidated: list[Invalidated] = []
        for one in notifications:
            if isinstance(one, Renewed):
                self._held.renew(one)
            elif isinstance(one, Invalidated) and (dead := self._held.take(one)) is not None:
                invalidated.append(dead)
        invalidated += self._held.over() if complete else []
        self._validity.forget_dead(now_ms=self._clock())
        if invalidated:
            self._consequences.invalidated(invalidated)

    def reset(self, why: str) -> None:
        """Hand on that something was missed."""
        self._consequences.reset(why)


class NullRegistry:
    """Implements ports.QueryRegistry without a grid. With a Redis it listens to the notification pipeline all the same: what
    another process outdates is outdated here too.

    shape: there is none.
    progress: there is none.
    known_since_ms: nothing is guarded that could have been invalidated unseen.
    """

    shape: GridShape | None = None
    progress: WriteProgress | None = None
    known_since_ms = 0

    def __init__(self, layer: EventLayer, process: ProcessContext, consequences: Consequences) -> None:
        self._supervisor = process.supervisor
        self.origin = new_origin(process.settings)
        self._telemetry = process.telemetry
        listener = InvalidationListener(process, consequences, origin=self.origin)
        self._reader = NotificationReader(layer, process, taker=listener)
        self._listens = process.settings.redis_url is not None
        self._thread: KeptThread | None = None

    def watermark(self) -> Version:
        """See ports.QueryRegistry; no version was seen."""
        return 0

    def serving(self, *, now_ms: int) -> bool:
        """See ports.QueryRegistry."""
        return True

    def caught_up(self, *, now_ms: int) -> bool:
        """See ports.QueryRegistry."""
        return True

    def lagging(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """See ports.QueryRegistry."""
        return False

    def lagging_partitions(self, *, now_ms: int) -> list[int]:
        """Query partitions nothing of which is served now: there are none at all."""
        return []

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """See ports.QueryRegistry: what was registered by others is guarded by nobody here."""
        return not registration_ids

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        """See ports.QueryRegistry; always refused."""
        raise RegistrationRefusedError(
            "no MongoDB is watched, so nobody would tell that this answer has changed: pass --mongo-url",
            retryable=False,
        )

    def held(self, registration_ids: Sequence[str]) -> bool:
        """See ports.QueryRegistry; nothing is registered."""
        return False

    def renewals(self, registration_ids: Sequence[str]) -> int:
        """See ports.QueryRegistry; nothing is registered."""
        return 0

    async def settled(self, registration_ids: Sequence[str]) -> None:
        """See ports.QueryRegistry; nothing is registered."""

    def lease(self, registration_ids: Sequence[str], *, until_ms: int, cost_ms: int = 0) -> None:
        """See ports.QueryRegistry; nothing is registered."""

    def cancel(self, registration_ids: Sequence[str]) -> None:
        """Nothing to do: nothing is registered."""

    def keep_dead(self, registration_ids: Sequence[str]) -> None:
        """Nothing to do: nothing with registrations is ever served, dead or not."""

    def withhold(self, why: str) -> None:
        """Nothing to do: nothing with registrations is ever served."""

    def release(self, why: str) -> None:
        """Nothing to do."""

    def resume(self) -> None:
        """Nothing to do: entries that only their own lifetime guards were served all along."""

    def housekeep(self, served: Served = ()) -> None:
        """Set the metrics, once a second."""
        self._telemetry.grid.registrations.set(0)
        self._telemetry.grid.serving.set(1)

    def start(self) -> None:
        """Listen, if there is a Redis."""
        if self._listens:
            self._thread = self._supervisor.thread("notifications", self._reader.run)

    def stop(self) -> None:
        """End the thread. Blocks until it has ended."""
        if self._thread is not None:
            self._thread.stop()
