"""The read path: looks entries up, and turns a handler's answer into an entry that exact invalidation guards.

Async shell around pure decisions (`decision`, `freshness`, `vary`). It never fails a request: whatever goes wrong, the
caller gets a Verdict that says why nobody may keep this answer, and one failure is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from quaestor.capture import Outcome
from quaestor.clock import Clock
from quaestor.errors import (
    DependencyError,
    NotCacheableError,
    RegistrationRefusedError,
    SketchError,
    StoreError,
)
from quaestor.model import CachedResponse, CapturedRead, Dependent, Version
from quaestor.ports import (
    CacheSketch,
    DependencyIndex,
    Leases,
    LifetimeEstimator,
    QueryRegistry,
    Registered,
    ResponseStore,
)
from quaestor.read_path import freshness, validation, vary
from quaestor.read_path.decision import Event
from quaestor.read_path.flights import Flight, Flights
from quaestor.read_path.key import Target
from quaestor.read_path.policy import DEFAULT, RoutePolicy
from quaestor.read_path.selection import covered
from quaestor.read_path.tags import declared_reads, waived
from quaestor.read_path.vary import Variants
from quaestor.settings import Settings
from quaestor.store.memory import Resident
from quaestor.telemetry import Telemetry

COPY_SLACK_MS = 2_000
"""How much longer than fresh_until an outside copy may live: Age is sent in whole seconds, and answers take time to arrive."""
MOST_SERVED = 10_000
"""Entries whose reads are counted between two calls of take_served()."""
MAX_URLS = 16
"""Spellings of one entry's URL that may be handed out with leave to keep: each has to be purged."""


class LocalStore(ResponseStore, Protocol):
    """A store part of which is in this process's memory."""

    def resident(self, key: str) -> Resident | None: ...

    def keep(self, response: CachedResponse) -> Resident: ...

    def drop(self, key: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the handler answered. headers: raw pairs, names in lower case, in order."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """event: KEPT with the resident entry; otherwise why the answer must not be kept, as labels and as text for debugging."""

    event: Event
    resident: Resident | None = None
    reasons: tuple[str, ...] = ()
    detail: str = ""


class ReadPath:
    """One per Quaestor. Use from one event loop at a time."""

    def __init__(
        self,
        *,
        registry: QueryRegistry,
        store: LocalStore,
        index: DependencyIndex,
        sketch: CacheSketch,
        estimator: LifetimeEstimator,
        settings: Settings,
        telemetry: Telemetry,
        clock: Clock,
        leases: Leases | None = None,
    ) -> None:
        self.clock = clock
        self.settings = settings
        self.telemetry = telemetry
        self.flights = Flights(leases)
        self.variants = Variants()
        self._registry = registry
        self._store = store
        self._index = index
        self._sketch = sketch
        self._estimator = estimator
        self._served: list[Resident] = []

    # Hits

    def resident(self, key: str, now_ms: int) -> Resident | None:
        """The entry in memory if it may be served at this moment. No I/O; nothing may be awaited before it is sent."""
        resident = self._store.resident(key)
        if resident is None:
            return None
        response = resident.response
        if now_ms < response.fresh_until_ms and self._registry.live(response.registrations, now_ms=now_ms):
            if resident.reads or len(self._served) < MOST_SERVED:
                if not resident.reads:
                    self._served.append(resident)
                resident.reads += 1
            return resident
        if now_ms >= response.fresh_until_ms or self._registry.serving(now_ms=now_ms):
            self._store.drop(key)
        return None

    def take_served(self) -> list[tuple[tuple[str, ...], int]]:
        """Of each entry that was found since the last call: its registrations and how often. On the event loop."""
        served, self._served = self._served, []
        taken = [(resident.response.registrations, resident.reads) for resident in served]
        for resident in served:
            resident.reads = 0
        return taken

    async def look(self, key: str, flight: Flight | None = None) -> Resident | None:
        """Memory, then the shared store. The result may be served until something is awaited.

        flight: the caller leads it, and will run the handler if there is nothing: then it waits for another process that is
        already doing so.
        """
        resident = self.resident(key, self.clock())
        if resident is not None:
            return resident
        try:
            if flight is not None and self.flights.leases is not None:
                response = await flight.fetch(self._usable)
                return None if response is None else self._store.keep(response)
            response = await self._store.get(key)
        except StoreError as error:
            self.telemetry.failure("store", "read_path.lookup_failed", error)
            return None
        if response is None:
            return None
        if not self._usable(response):
            self._store.drop(key)  # reading it took it into memory
            return None
        return self._store.resident(key) or Resident(response)

    def _usable(self, response: CachedResponse) -> bool:
        """Of an entry out of the shared store: whether it may be served now."""
        return response.stored_at_ms >= self._registry.known_since_ms and self.alive(response)

    def alive(self, response: CachedResponse) -> bool:
        """Whether it may be served now, until something is awaited."""
        now_ms = self.clock()
        return now_ms < response.fresh_until_ms and self._registry.live(response.registrations, now_ms=now_ms)

    async def allow(self, resident: Resident, url: str) -> bool:
        """Let this URL be handed out for this entry: the dependency index knows of it before anyone keeps it.

        False: the answer must go out without leave to keep, or the entry has died meanwhile (ask resident() again).
        """
        response = resident.response
        if len(resident.urls) >= MAX_URLS:
            return False
        try:
            await self._index.add(_dependent(response, (url,)))
        except StoreError as error:
            self.telemetry.failure("store", "read_path.index_failed", error)
            return False
        resident.urls.add(url)
        return self.alive(response)

    # Misses

    def serving(self, now_ms: int) -> bool:
        return self._registry.serving(now_ms=now_ms)

    def watermark(self) -> Version:
        """To be taken before the handler runs."""
        return self._registry.watermark()

    async def admit(
        self,
        answer: Answer,
        outcome: Outcome,
        *,
        target: Target,
        request_headers: Sequence[tuple[bytes, bytes]],
        since: Version,
        leave: bool,
        policy: RoutePolicy = DEFAULT,
    ) -> Verdict:
        """Make an entry of an answer: register its reads, tell index and sketch, store it, and see that it is still alive.

        leave: whether others will be allowed to keep copies. Takes one activation and, with Redis, two more round trips.
        After a Verdict other than KEPT nothing of the answer is stored that could ever be served.
        """
        reasons = [reason for reason in outcome.reasons if not waived(policy, reason.reason)]
        if reasons:
            return Verdict(
                event=Event.UNGUARDED,
                reasons=tuple(dict.fromkeys(reason.reason.value for reason in reasons)),
                detail="; ".join(reason.detail for reason in reasons),
            )
        reads = outcome.reads + declared_reads(
            policy,
            target,
            deployment=self.settings.deployment,
            namespace=self.settings.control_namespace,
            since=since,
        )
        key = self._key(target, answer, request_headers, policy)
        if key is None:
            return Verdict(event=Event.UNGUARDED, reasons=("vary",))
        started_ms = self.clock()
        try:
            registered = await self._registry.register(
                reads, since=since, expires_at_ms=started_ms + self.settings.ttl_max_ms + 2 * COPY_SLACK_MS
            )
        except NotCacheableError as error:
            return Verdict(event=Event.UNGUARDED, reasons=error.reasons, detail=str(error))
        except RegistrationRefusedError as error:
            return Verdict(event=Event.UNGUARDED, reasons=("refused",), detail=str(error))
        except DependencyError as error:
            self.telemetry.failure("event-layer", "read_path.register_failed", error)
            return Verdict(event=Event.UNGUARDED, reasons=("failed",), detail=str(error))
        response = self._entry(answer, registered, key=key, resource=target.resource, policy=policy)
        if response is None:
            self._registry.lease(registered.ids, until_ms=0)
            return Verdict(event=Event.UNGUARDED, reasons=("lifetime",))
        self._registry.lease(registered.ids, until_ms=response.fresh_until_ms + 2 * COPY_SLACK_MS)
        verdict = await self._keep(response, target.url, leave=leave)
        if verdict.resident is not None:
            if self.settings.debug_header:
                verdict.resident.explain = _explain(outcome.reads, registered, response)
            self._estimator.observe_read(
                registered.query_ids,
                now_ms=response.stored_at_ms,
                ttl_ms=response.fresh_until_ms - response.stored_at_ms,
            )
        return verdict

    def _key(
        self, target: Target, answer: Answer, request_headers: Sequence[tuple[bytes, bytes]], policy: RoutePolicy
    ) -> str | None:
        by = vary.names(answer.headers, covered=covered(policy))
        if by is not None:
            by = self.variants.learn(target.key, by)
        return None if by is None else vary.variant_key(target.key, by, request_headers)

    def _entry(
        self, answer: Answer, registered: Registered, *, key: str, resource: str, policy: RoutePolicy
    ) -> CachedResponse | None:
        """None if the handler does not let it live for a moment."""
        now_ms = self.clock()
        ttl_ms = self._estimator.estimate_ms(
            registered.query_ids, write_rate_hz=registered.write_rate_hz, now_ms=now_ms
        )
        allowed_s = freshness.shared_lifetime_s(answer.headers, now_s=now_ms / 1000)
        if policy.ttl_ms is not None:
            ttl_ms = min(ttl_ms, policy.ttl_ms)
        ttl_ms = min(ttl_ms, self.settings.ttl_max_ms, ttl_ms if allowed_s is None else allowed_s * 1000)
        if ttl_ms <= 0:
            return None
        given = freshness.values(answer.headers, b"etag")
        etag = given[0] if len(given) == 1 and validation.valid_etag(given[0]) else validation.strong_etag(answer.body)
        return CachedResponse(
            key=key,
            status=answer.status,
            headers=tuple(answer.headers),
            body=answer.body,
            etag=etag,
            stored_at_ms=now_ms,
            fresh_until_ms=now_ms + ttl_ms,
            registrations=registered.ids,
            tags=registered.tags,
            resource=resource,
        )

    async def _keep(self, response: CachedResponse, url: str, *, leave: bool) -> Verdict:
        """Index and sketch first, because from the moment an entry is in the store it is handed out."""
        try:
            if leave:
                await asyncio.gather(self._index.add(_dependent(response, (url,))), self._report_read(response))
            else:
                await self._index.add(_dependent(response, ()))
            await self._store.put(response, ttl_ms=response.fresh_until_ms - self.clock())
        except (StoreError, SketchError) as error:
            part = "sketch" if isinstance(error, SketchError) else "store"
            self.telemetry.failure(part, f"read_path.{part}_failed", error)
            await self._undo(response)
            return Verdict(event=Event.PART_FAILED, reasons=("failed",), detail=str(error))
        if not self.alive(response):
            await self._undo(response)
            return Verdict(event=Event.DIED, reasons=("died",), detail="invalidated while it was being stored")
        resident = self._store.resident(response.key)
        if resident is None or resident.response is not response:
            resident = Resident(response)
        resident.urls.add(url)
        return Verdict(event=Event.KEPT, resident=resident)

    async def _report_read(self, response: CachedResponse) -> None:
        await self._sketch.report_read(
            response.resource, expires_at_ms=response.fresh_until_ms + COPY_SLACK_MS, now_ms=response.stored_at_ms
        )

    async def _undo(self, response: CachedResponse) -> None:
        try:
            await self._store.evict([response])
        except StoreError as error:
            # Perhaps it lies in the shared store; as long as it does, its registrations have to guard it: keep the lease.
            self.telemetry.failure("store", "read_path.evict_failed", error)
        else:
            self._registry.lease(response.registrations, until_ms=0)


def _explain(reads: Sequence[CapturedRead], registered: Registered, response: CachedResponse) -> str:
    """Which queries, by their shape: values are left out, they may be personal."""
    shapes = dict.fromkeys(
        f"{read.query.operation.value} on {read.query.namespace} by ({', '.join(read.query.filter)})" for read in reads
    )
    widened = f"; widened: {', '.join(registered.widened)}" if registered.widened else ""
    lifetime_ms = response.fresh_until_ms - response.stored_at_ms
    return f"depends on {', '.join(shapes)}{widened}; lives {lifetime_ms} ms; {', '.join(registered.ids)}"


def _dependent(response: CachedResponse, urls: tuple[str, ...]) -> Dependent:
    return Dependent(
        key=response.key,
        registrations=response.registrations,
        resource=response.resource,
        urls=urls,
        tags=response.tags,
        copies_until_ms=response.fresh_until_ms + COPY_SLACK_MS,
    )
