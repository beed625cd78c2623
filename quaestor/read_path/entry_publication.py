"""Publication: an entry is stored once its handler has ended, because the handler may write after its answer."""

from __future__ import annotations

import time

from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.ports import QueryRegistry
from quaestor.read_path import partial_answers, shared_cache_rules
from quaestor.read_path.coalescing import RequestCoalescing
from quaestor.read_path.entries import kept_until_ms
from quaestor.read_path.eviction_retry import EvictionRetry
from quaestor.read_path.explicit_entries import ExplicitEntries
from quaestor.read_path.local_store import LocalStore
from quaestor.read_path.partial_answers import Part
from quaestor.read_path.usability import Usability
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.store.memory import Resident


class EntryPublication:
    """Stores or discards the entries of admission; one per read path. Use from one event loop at a time."""

    def __init__(
        self,
        registry: QueryRegistry,
        store: LocalStore,
        usability: Usability,
        coalescing: RequestCoalescing,
        explicit: ExplicitEntries,
        process: ProcessContext,
    ) -> None:
        telemetry = process.telemetry
        self._clock = process.clock
        self._most_bytes = process.settings.store.max_body_bytes
        self._registry = registry
        self._store = store
        self._usability = usability
        self._coalescing = coalescing
        self._explicit = explicit
        self._telemetry = telemetry
        self._eviction = EvictionRetry(store=store, registry=registry, telemetry=telemetry)

    def keep_in_memory(self, response: CachedResponse) -> Resident | None:
        """Keep a guarded entry in this process's memory alone; None if it has died meanwhile. No I/O."""
        resident = self._store.keep(response)
        if self._usability.servable(response):
            return resident
        self._store.drop(response.key)
        return None

    def backs_off(self, key: str) -> bool:
        """Whether no answer to this key is stored for a while, because the store failed."""
        return self._coalescing.store_backs_off(key, now_ms=self._clock())

    def with_other_parts(self, response: CachedResponse, part: Part) -> CachedResponse:
        """Return the part combined with the parts that are stored."""
        resident = self._store.resident(response.key)
        if resident is not None and not self._usability.servable(resident.response):
            self._store.drop(response.key, "invalidated")
        return partial_answers.combined_in(self._store, response, part, most_bytes=self._most_bytes)

    async def publish(self, resident: Resident, *, asked_ms: int) -> Resident | None:
        """Store an entry of admit(). None: it must not be served, and no servable copy of it is stored."""
        response = resident.response
        if shared_cache_rules.is_explicit(response):
            return resident  # stored already: only its lifetime guards it
        begun_s = time.perf_counter()
        try:
            with self._telemetry.tracing.span("quaestor.store"):
                await self._store.put(response, ttl_ms=kept_until_ms(response) - self._clock())
        except StoreError as error:
            self._telemetry.failure("store", "read_path.store_failed", error)
            await self.undo(response, acknowledged=False)
            return None
        except BaseException:  # cancelled, but perhaps stored, without a check whether the entry died meanwhile
            self._coalescing.spawn(self._eviction.again(response, at_once=True))
            raise
        finally:
            self._telemetry.stores.store_s.observe(time.perf_counter() - begun_s)
        if not self._usability.servable(response) or not self._explicit.accept(response, asked_ms=asked_ms):
            await self.undo(response, acknowledged=True)
            return None
        self._store.adopt(resident)
        return resident

    def discard(self, resident: Resident) -> None:
        """Give up an entry of admit() that was not stored, and release its registrations. No I/O."""
        if not shared_cache_rules.is_explicit(resident.response):
            self._registry.lease(resident.response.registrations, until_ms=0)

    async def undo(self, response: CachedResponse, *, acknowledged: bool) -> None:
        """Evict an entry that must not be served after all. If the store does not answer, retry in the background.

        acknowledged: the store has confirmed storing it.
        """
        if not await self._eviction.take(response, acknowledged=acknowledged):
            self._coalescing.spawn(self._eviction.again(response))
