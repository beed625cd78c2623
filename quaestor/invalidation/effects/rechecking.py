"""Rechecking before evicting: the queries of held registrations run again, and entries with an unchanged result live on.

The steps for each query, one query at a time: note the progress of the grid, run the query, compare the result. If it is the
same, every cell activates the next round of the registrations, and all processes learn that they are renewed. A miss takes the
same steps. Every write that the read may have missed is therefore matched, as for a new registration. A further
change, a failure or the end of the time ends the registration in every process (docs/adr/0015-recheck-before-evicting.md).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread

from quaestor.capture.rereading import Reread
from quaestor.errors import DatabaseError, DependencyError, EventLayerError, RegistrationRefusedError
from quaestor.invalidation.effects.broadcast import Broadcast
from quaestor.invalidation.effects.progress import EffectsProgress
from quaestor.invalidation.registry.registration_ids import in_round
from quaestor.model import Invalidated, OutsideGrid, Query, Registration, Renewed, Version
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import Supervisor
from quaestor.settings import Settings

AT_ONCE: Final = 4
"""Queries of one process that run again at the same time."""


class Registrations(Protocol):
    """Registrations of this process, in the view of rechecking: see Registry."""

    def watermark(self) -> Version:
        """Return the newest version seen from the grid."""

    def renewable(self, name: str) -> Registration | None:
        """Return the registration behind a name, while it is held and needed."""

    async def renew(self, names: Sequence[str], *, since: Version, read_at: Version) -> list[Registration]:
        """Activate the next round of these registrations."""

    def rechecked(self, query_id: str, *, kept: bool, query_ms: float) -> None:
        """Note the outcome of a recheck."""


class Reader(Protocol):
    """Reader of queries: see Rereader."""

    def read(self, query: Query) -> Reread:
        """Run a query and read its whole result."""


_Due = dict[str, Invalidated]
"""Held registrations of one query, each with its latest change."""


class Rechecking:
    """Rechecks of one process. Implements Rechecker.

    held(), given_up() and settled() may be called from any thread, the other methods from one event loop.

    alone: there is no other process to notify.
    """

    def __init__(
        self,
        *,
        registrations: Registrations,
        broadcast: Broadcast,
        progress: EffectsProgress,
        alone: bool,
        settings: Settings,
        telemetry: Telemetry,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._registrations = registrations
        self._broadcast = broadcast
        self._progress = progress
        self._alone = alone
        self._bound_s = settings.grid.recheck_ms / 1000
        self._telemetry = telemetry
        self._reader: Reader | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: dict[str, _Due] = {}
        self._until_s: dict[str, float] = {}
        self._running: set[str] = set()
        self._errands = (supervisor or Supervisor(telemetry)).errands("rechecking")
        self._limiter = anyio.CapacityLimiter(AT_ONCE)

    def start(self, reader: Reader) -> None:
        """Begin on the running event loop."""
        self._reader = reader
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """End the rechecks under way. Registrations without a verdict die, here and in every process."""
        self._loop = None
        await self._errands.aclose()
        self._due.clear()
        self._until_s.clear()
        self._running.clear()

    @property
    def waiting(self) -> int:
        """See Rechecker."""
        return len(self._running)

    def held(self, name: str, invalidated: Invalidated) -> None:
        """See Rechecker."""
        self._submit(lambda: self._begin(name, invalidated))

    def given_up(self, invalidated: Invalidated) -> None:
        """See Rechecker."""
        self._telemetry.invalidations.rechecks.labels("not-worth-it").inc()
        if not self._alone:
            self._submit(lambda: self._spawn(self._tell_dead([invalidated])))

    def settled(self, name: str, *, renewed: bool) -> None:
        """See Rechecker."""
        self._submit(lambda: self._end(name))

    def _submit(self, act: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop was closed: the process is ending
                loop.call_soon_threadsafe(act, context=contextvars.Context())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._errands.start(work)

    def _begin(self, name: str, invalidated: Invalidated) -> None:
        if self._loop is None:
            return
        self._progress.held(name)
        self._due.setdefault(invalidated.query_id, {})[name] = invalidated
        self._until_s.setdefault(name, self._loop.time() + self._bound_s)
        if invalidated.query_id not in self._running:
            self._running.add(invalidated.query_id)
            self._spawn(self._run(invalidated.query_id))

    def _end(self, name: str) -> None:
        self._until_s.pop(name, None)
        self._progress.settled(name)

    async def _run(self, query_id: str) -> None:
        """Recheck the held registrations of one query until none is left, including those held meanwhile."""
        try:
            while due := self._due.pop(query_id, None):
                await self._recheck(query_id, due)
        except Exception as error:  # a mistake of ours: held registrations die at the end of their time
            self._telemetry.failure("effects", "effects.recheck_failed", repr(error))
        finally:
            self._running.discard(query_id)

    async def _recheck(self, query_id: str, due: _Due) -> None:
        loop = asyncio.get_running_loop()
        begun_s, outcome = loop.time(), "given-up"
        kept: Sequence[str] = ()
        try:
            async with asyncio.timeout_at(min(self._until_s.get(name, begun_s) for name in due)):
                kept = await self._compared(query_id, due)
            outcome = "kept" if kept else "changed"
        except (TimeoutError, RegistrationRefusedError):
            # A further change, which is rechecked in its turn if that is possible; or the grid does not answer.
            kept = [name for name in due if name in self._due.get(query_id, ())]
        except DatabaseError as error:
            self._telemetry.failure("mongodb", "effects.recheck_unread", error)
        self._telemetry.invalidations.rechecks.labels(outcome).inc()
        self._telemetry.invalidations.recheck_s.observe(loop.time() - begun_s)
        dead = [invalidated for name, invalidated in due.items() if name not in kept]
        for invalidated in dead:
            self._due.get(query_id, {}).pop(invalidated.registration_ids[0], None)
        if dead:
            await self._tell_dead(dead)

    async def _compared(self, query_id: str, due: _Due) -> list[str]:
        """Run a query again; return the names of the renewed registrations, whose result is unchanged."""
        registrations = {
            name: registration for name in due if (registration := self._registrations.renewable(name)) is not None
        }
        if not registrations or self._reader is None:
            return []
        since = self._registrations.watermark()
        first = next(iter(registrations.values()))
        query = first.asked or first.query
        reread = await anyio.to_thread.run_sync(self._reader.read, query, limiter=self._limiter, abandon_on_cancel=True)
        same = [
            name
            for name, registration in registrations.items()
            if reread.digest is not None and registration.digest == reread.digest
        ]
        self._registrations.rechecked(query_id, kept=bool(same), query_ms=reread.duration_ms)
        if not same:
            return []
        renewed = await self._registrations.renew(same, since=since, read_at=reread.read_at)
        try:
            await self._broadcast.tell([Renewed(registration_id=registration.id) for registration in renewed])
        except EventLayerError as error:  # the registrations die at the end of their time
            self._telemetry.failure("event-layer", "effects.verdict_not_told", error)
        return [in_round(registration.id, 0) for registration in renewed]

    async def _tell_dead(self, dead: Sequence[Invalidated]) -> None:
        """Report these registrations as dead for good to every process, this one included."""
        notifications = [replace(invalidated, source=OutsideGrid.NAME) for invalidated in dead]
        try:
            await self._broadcast.tell(notifications)
        except DependencyError as error:
            self._telemetry.failure("event-layer", "effects.verdict_not_told", error)
