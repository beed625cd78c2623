"""Handler of notifications in one app process: updates validity, activations and the view of the grid.

An `Invalidated` marks its registrations dead in the reading thread, before anything else happens. The very next look-up
therefore refuses the entry; the effects follow on the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.errors import EventLayerError
from quaestor.invalidation.registry.activation import Activations
from quaestor.invalidation.registry.cancellation import Cancellations
from quaestor.invalidation.registry.freshness import Freshness
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.grid_view import Change
from quaestor.invalidation.registry.process_registrations import ProcessRegistrations
from quaestor.invalidation.registry.registration_ids import round_of
from quaestor.invalidation.registry.write_progress import WriteProgress
from quaestor.model import Activated, Cell, Heartbeat, Invalidated, Notification, Refused, Renewed, Version
from quaestor.runtime.supervision.process_context import ProcessContext


class NotificationHandler:
    """Taker of notifications for a Registry. Implements NotificationTaker. All but resume() is called in the reading thread.

    watermark: newest version that the grid has reported.
    """

    def __init__(
        self,
        registrations: ProcessRegistrations,
        activations: Activations,
        cancellations: Cancellations,
        progress: WriteProgress,
        process: ProcessContext,
        consequences: Consequences,
    ) -> None:
        self.watermark: Version = 0
        self._origin = registrations.origin
        self._validity = registrations.validity
        self._held = registrations.held
        self._view = registrations.view
        self._shared = registrations.shared
        self._activations = activations
        self._cancellations = cancellations
        self._progress = progress
        self._bound_ms = process.settings.grid.staleness_bound_ms
        self._telemetry = process.telemetry
        self._clock = process.clock
        self._consequences = consequences
        self._suspended = False
        self._withheld: frozenset[str] = frozenset()

    def take(self, notifications: Sequence[Notification], *, complete: bool) -> None:
        """Act on these notifications. Nothing counts as fresh before `complete`: earlier notifications may report deaths."""
        now_ms = self._clock()
        invalidated: list[Invalidated] = []
        for notification in notifications:
            match notification:
                case Invalidated():
                    if (dead := self._invalidate(notification)) is not None:
                        invalidated.append(dead)
                case Renewed():
                    self._held.renew(notification)
                case Activated():
                    self._activations.observe(notification)
                case Refused():
                    self._activations.refuse(notification.registration_id, notification.reason)
                case Heartbeat():
                    self.watermark = max(self.watermark, notification.watermark)
                    self._observe(notification)
        if complete:
            invalidated += self._held.over()
        if complete and not self._suspended and not self._withheld:
            self._validity.prove(Freshness.of(self._view.partitions_ms(), bound_ms=self._bound_ms, now_ms=now_ms))
        if invalidated:
            self._consequences.invalidated(invalidated)
            # The cell that fired has forgotten them; the other cells of the query partition must be notified.
            self._cancellations.cancel([i for notification in invalidated for i in notification.registration_ids])
        self._held.tell()
        self._progress.advance()

    def reset(self, why: str) -> None:
        """Stop serving stored answers: own registrations die, pending ones fail, and the grid must prove itself anew."""
        self._suspended = True
        self._validity.prove(Freshness())
        self._view.reset()
        self._validity.kill(self._shared, now_ms=self._clock())
        self._held.clear()
        self._shared.withdraw_all()
        self._activations.refuse_all(why)
        self._consequences.reset(why)
        self._held.tell()

    def withhold(self, why: str) -> None:
        """Serve nothing from cache until `release`. From any thread."""
        self._withheld |= {why}
        self._validity.prove(Freshness())

    def release(self, why: str) -> None:
        """Serve again at the grid's next proof of freshness, unless other reasons remain. From any thread."""
        self._withheld -= {why}

    def resume(self) -> None:
        """End a reset after the removal of everything stored before it: the next heartbeats may open the cache again."""
        self._suspended = False

    def _invalidate(self, invalidated: Invalidated) -> Invalidated | None:
        """Mark the named registrations dead; return those dead for good, by the names that apps know."""
        self.watermark = max(
            self.watermark, invalidated.version
        )  # before anything else: a read from now on has seen this version
        dead = self._held.take(invalidated)
        for registration_id in invalidated.registration_ids:
            self._activations.refuse(registration_id, "the result changed while it was being registered")
        if isinstance(invalidated.source, Cell):
            # The cell that fired has forgotten this round; the other cells must be notified, even if there is a next round.
            own = [i for i in invalidated.registration_ids if i.startswith(self._origin) and round_of(i) is not None]
            if own:
                self._cancellations.cancel_rounds(invalidated.query_id, own)
        return dead

    def _observe(self, beat: Heartbeat) -> None:
        change = self._view.observe(beat)
        if change is Change.RESHAPED:
            self.reset("the grid was re-partitioned")
            self._view.observe(beat)
        elif change is Change.SUCCEEDED:
            # All active registrations have been taken over; the old cells activate no pending one any more.
            self._activations.refuse_all("the grid was partitioned anew meanwhile")
            self._telemetry.event("registry.grid_succeeded", shape=str(beat.shape))
            try:
                self._consequences.succeeded(beat.shape)
            except EventLayerError as error:
                self.reset(f"the collection events did not reach the grid that has taken over: {error}")
