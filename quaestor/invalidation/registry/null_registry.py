"""Null registry for a process without a watched database: the cache follows only the header fields of answers (RFC 9111).

No query can be registered, so no answer that depends on a query is ever stored. Every other entry may always be served.
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
    """Taker of notifications for a process without a grid: passes on invalidations and resets. Implements NotificationTaker.

    Of registrations that their owner rechecks, only final deaths are passed on.

    origin: origin of this process.
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
        """Pass on the invalidations among these; of rechecked registrations only the final deaths."""
        invalidated: list[Invalidated] = []
        for notification in notifications:
            if isinstance(notification, Renewed):
                self._held.renew(notification)
            elif isinstance(notification, Invalidated) and (dead := self._held.take(notification)) is not None:
                invalidated.append(dead)
        invalidated += self._held.over() if complete else []
        self._validity.forget_dead(now_ms=self._clock())
        if invalidated:
            self._consequences.invalidated(invalidated)

    def reset(self, why: str) -> None:
        """Pass on that a notification was missed."""
        self._consequences.reset(why)


class NullRegistry:
    """Registry without a grid. Implements ports.QueryRegistry.

    With a Redis it still listens to the notification pipeline: entries outdated by another process are outdated here too.

    shape: None: there is no grid.
    progress: None: there is no grid.
    known_since_ms: 0: no guarded entry could have been invalidated unseen.
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
        """Return the query partitions that serve nothing now: there are none at all."""
        return []

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """See ports.QueryRegistry: registrations of other processes are not guarded here."""
        return not registration_ids

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        """See ports.QueryRegistry; always refused."""
        raise RegistrationRefusedError(
            "no MongoDB is watched, so no change of this answer would be noticed: pass --mongo-url",
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
        """Do nothing: nothing is registered."""

    def keep_dead(self, registration_ids: Sequence[str]) -> None:
        """Do nothing: no entry with registrations is ever served."""

    def withhold(self, why: str) -> None:
        """Do nothing: no entry with registrations is ever served."""

    def release(self, why: str) -> None:
        """Do nothing."""

    def resume(self) -> None:
        """Do nothing: entries guarded only by their own lifetime were served all along."""

    def housekeep(self, served: Served = ()) -> None:
        """Set the metrics, once a second."""
        self._telemetry.grid.registrations.set(0)
        self._telemetry.grid.serving.set(1)

    def start(self) -> None:
        """Listen to notifications, if there is a Redis."""
        if self._listens:
            self._thread = self._supervisor.thread("notifications", self._reader.run)

    def stop(self) -> None:
        """End the thread. Blocks until it has ended."""
        if self._thread is not None:
            self._thread.stop()
