"""Look-up of stored entries: in this process's memory, then in the store that is shared with other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.policy import RoutePolicy
from quaestor.ports import QueryRegistry
from quaestor.read_path import refresh
from quaestor.read_path.coalescing import Flight, RequestCoalescing
from quaestor.read_path.entry_watches import EntryWatches
from quaestor.read_path.explicit_entries import ExplicitEntries
from quaestor.read_path.local_store import LocalStore
from quaestor.read_path.reuse import Use
from quaestor.read_path.usability import Usability
from quaestor.read_path.verification_samples import Samples
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.store.memory import MemoryStore, Resident

MOST_SERVED = 10_000
"""Entries whose reads are counted between two calls of take_served()."""


class EntryLookup:
    """Finds entries by key; one per read path. Use from one event loop at a time."""

    def __init__(
        self,
        *,
        registry: QueryRegistry,
        store: LocalStore,
        usability: Usability,
        coalescing: RequestCoalescing,
        explicit: ExplicitEntries,
        early: refresh.EarlyRefresh,
        process: ProcessContext,
    ) -> None:
        self.clock = process.clock
        self.early = early
        self.samples = Samples(
            share=process.settings.verification.verify_share, per_second=process.settings.verification.verify_per_second
        )
        self.watches = EntryWatches()
        self._registry = registry
        self._store = store
        self._usability = usability
        self._coalescing = coalescing
        self._explicit = explicit
        self._telemetry = process.telemetry
        self._memory_only = type(store) is MemoryStore
        self._served: list[Resident] = []
        self.served_to: list[Callable[[Sequence[tuple[tuple[str, ...], int]]], None]] = []
        """Callbacks that receive the result of take_served() as well."""

    def servable(self, key: str, now_ms: int) -> Resident | None:
        """Return the entry in memory if it may be served at this moment. No I/O; await nothing before it is sent."""
        resident = self._store.resident(key)
        if resident is None:
            return None
        response = resident.response
        if now_ms < resident.settled_until_ms and (
            self._registry.live(response.registrations, now_ms=now_ms) or not response.registrations
        ):
            if resident.reads or len(self._served) < MOST_SERVED:
                if not resident.reads:
                    self._served.append(resident)
                resident.reads += 1
            return resident
        if not self._usability.valid(response, now_ms) and (
            now_ms >= response.fresh_until_ms
            or not (
                self._registry.lagging(response.registrations, now_ms=now_ms)
                or self._registry.held(response.registrations)
            )
        ):
            self._store.drop(key, "expired" if now_ms >= response.fresh_until_ms else "invalidated")
        return None

    def knows(self, key: str) -> bool:
        """Whether there is an entry in memory, usable or not. No I/O."""
        return self._store.resident(key) is not None

    def valid(self, key: str, now_ms: int) -> Resident | None:
        """Return the entry in memory if nothing has invalidated it, even if its lifetime is over. No I/O."""
        resident = self._store.resident(key)
        return resident if resident is not None and self._usability.valid(resident.response, now_ms) else None

    async def fetch(self, key: str, flight: Flight | None = None, policy: RoutePolicy | None = None) -> Resident | None:
        """Return the entry out of memory, or else out of the shared store. The entry is valid until the next await, but its
        lifetime may be over: see `Usability.use`. A store that does not answer is reported, and yields None.

        flight: led by the caller, who will run the handler if there is no entry. Then this waits for another process that runs
            the handler, unless `policy` allows a stale answer meanwhile.
        """
        now_ms = self.clock()
        resident = self.servable(key, now_ms)
        if resident is not None or (self._memory_only and not self.knows(key)):
            return resident
        if self._coalescing.store_backs_off(key, now_ms=now_ms):
            return None
        try:
            response = await self._from_store(key, flight, policy)
        except StoreError as error:
            self._telemetry.failure("store", "read_path.lookup_failed", error)
            self._coalescing.back_off_store(key, now_ms=self.clock())
            return None
        if response is None:
            return self.valid(key, self.clock())
        if flight is None or self._coalescing.leases is None:
            if not self._acceptable(response):
                # Reading the entry has put it into memory.
                self._store.drop(key, "expired" if self.clock() >= response.fresh_until_ms else "invalidated")
                return None
            return self.early.settle(self._store.resident(key) or Resident(response))
        return self.early.settle(self._store.keep(response))

    async def _from_store(self, key: str, flight: Flight | None, policy: RoutePolicy | None) -> CachedResponse | None:
        """Return the shared store's entry; for the leader of a flight with leases, only an acceptable one."""
        if flight is None or self._coalescing.leases is None:
            return await self._store.get(key)
        return await flight.fetch_or_stale(
            self._servable_here,
            acceptable=self._acceptable,
            instead=lambda old: policy is not None and self._usability.use(old, policy, {}) is not Use.VALIDATE,
        )

    def handed_over(self, resident: Resident) -> Resident | None:
        """Return an entry that another request has just found or stored, if it may be served now, even if memory does not hold
        it. No I/O."""
        if not self._servable_here(resident.response):
            return None
        self._store.used(resident.response.key, 1)
        return resident

    async def leads_renewal(self, flight: Flight, old: CachedResponse) -> bool:
        """Whether this process is to refresh an entry before its lifetime ends; see `refresh.leads`."""
        return await refresh.leads(flight, old, usable=self._servable_here, keep=self._store.keep)

    def _acceptable(self, response: CachedResponse) -> bool:
        """Whether an entry out of the shared store may be used here. If so, its labels are known from now on."""
        return self._usability.trusted(response) and self._explicit.accept(response)

    def _servable_here(self, response: CachedResponse) -> bool:
        """Whether an entry out of the shared store may be served now."""
        return self._acceptable(response) and self._usability.servable(response)

    async def settled(self, key: str) -> bool:
        """Wait for the recheck of an entry in memory to end. False at once if none is under way."""
        resident = self._store.resident(key)
        if resident is None or not self._registry.held(resident.response.registrations):
            return False
        await self._registry.settled(resident.response.registrations)
        return True

    def lagging(self, key: str, now_ms: int) -> bool:
        """Whether an entry in memory cannot be served only because its part of the grid lags. No I/O."""
        resident = self._store.resident(key)
        return resident is not None and self._registry.lagging(resident.response.registrations, now_ms=now_ms)

    def drop(self, key: str) -> None:
        """Drop the entry in memory: something newer is known."""
        self._store.drop(key, "outdated")

    def take_served(self) -> list[tuple[tuple[str, ...], int]]:
        """Return the registrations and hits of each entry served since the last call. Call it on the event loop."""
        served, self._served = self._served, []
        taken = [(resident.response.registrations, resident.reads) for resident in served]
        for listener in self.served_to:
            listener(taken)
        for resident in served:
            self._store.used(resident.response.key, resident.reads)
            resident.reads = 0
            if resident.usefulness is not None:
                resident.usefulness.use()
                resident.usefulness = None
        return taken
