"""Handler of notifications in one app process: what they change of what is valid, active and known of the grid.

An `Invalidated` marks its registrations dead in the reading thread, before anything else happens, so that the very next look-up
refuses the entry; the effects follow on the event loop.
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
    """Implements NotificationTaker for a Registry; all but resume() is called in the reading thread.

    watermark: the newest version that the grid has reported.
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
        """Act on these. Nothing is taken for fresh before `complete`: what was missed may tell of deaths."""
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
            # The cell that fired has forgotten them; the others of the query partition have to be told.
            self._cancellations.cancel([i for notification in invalidated for i in notification.registration_ids])
        self._held.tell()
        self._progress.advance()

    def reset(self, why: str) -> None:
        """Stop serving what is stored: what we registered dies, what is pending fails, the grid must prove itself anew."""
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
        """Serve again when the grid proves itself next, unless there are other reasons not to. From any thread."""
        self._withheld -= {why}

    def resume(self) -> None:
        """End a reset, when everything stored before it is gone: the next heartbeats may open the cache again."""
        self._suspended = False

    def _invalidate(self, one: Invalidated) -> Invalidated | None:
        """Mark what is named dead; returns what is dead for good, by the names that apps know."""
        self.watermark = max(self.watermark, one.version)  # first: what is read again from now on has seen it
        dead = self._held.take(one)
        for registration_id in one.registration_ids:
            self._activations.refuse(registration_id, "the result changed while it was being registered")
        if isinstance(one.source, Cell):
            # The cell that fired has forgotten this round; the others have to be told, also when there is a next one.
            own = [i for i in one.registration_ids if i.startswith(self._origin) and round_of(i) is not None]
            if own:
                self._cancellations.cancel_rounds(one.query_id, own)
        return dead

    def _observe(self, beat: Heartbeat) -> None:
        change = self._view.observe(beat)
        if change is Change.RESHAPED:
            self.reset("the grid was re-partitioned")
            self._view.observe(beat)
        elif change is Change.SUCCEEDED:
            # Whatever was active has been taken over; what the old cells have not activated yet, they will not.
            self._activations.refuse_all("the grid was partitioned anew meanwhile")
            self._telemetry.event("registry.grid_succeeded", shape=str(beat.shape))
            try:
                self._consequences.succeeded(beat.shape)
            except EventLayerError as error:
                self.reset(f"the grid that has taken over could not be told what has changed: {error}")
