"""The read path: looks entries up, and turns a handler's answer into an entry that exact invalidation guards.

Async shell around pure decisions (`decision`, `freshness`, `vary`). It never fails a request: whatever goes wrong, the
caller gets a Verdict that says why nobody may keep this answer, and one failure is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quaestor.capture import Outcome
from quaestor.clock import Clock
from quaestor.errors import DependencyError, NotCacheableError, RegistrationRefusedError, SketchError, StoreError
from quaestor.model import CachedResponse, Uncacheable, Version
from quaestor.observability.telemetry import Telemetry
from quaestor.policy import DEFAULT, RoutePolicy
from quaestor.ports import CacheSketch, DependencyIndex, Leases, LifetimeEstimator, QueryRegistry, Registered
from quaestor.read_path import explaining, freshness, refresh, reuse, shared_cache_rules, vary
from quaestor.read_path.coalescing import Flight, RequestCoalescing
from quaestor.read_path.decision import Event
from quaestor.read_path.declared_dependencies import declared_reads, waived
from quaestor.read_path.entries import (
    COPY_SLACK_MS,
    Answer,
    Verdict,
    dependent,
    guarded_entry,
    in_groups,
    kept_until_ms,
)
from quaestor.read_path.eviction_retry import EvictionRetry
from quaestor.read_path.explicit_entries import ExplicitEntries
from quaestor.read_path.key import Target
from quaestor.read_path.local_store import LocalStore
from quaestor.read_path.variant_key import covered
from quaestor.read_path.vary import Variants
from quaestor.settings import Settings
from quaestor.store.memory import MemoryStore, Resident

MOST_SERVED = 10_000
"""Entries whose reads are counted between two calls of take_served()."""
MAX_URLS = 16
"""Spellings of one entry's URL that may be handed out with leave to keep: each has to be purged."""


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
        self.flights = RequestCoalescing(leases)
        self.early = refresh.EarlyRefresh(beta=settings.early_refresh)
        self.variants = Variants()
        self._registry = registry
        self._store = store
        self._index = index
        self._sketch = sketch
        self._estimator = estimator
        self._alone = isinstance(store, MemoryStore)
        self._served: list[Resident] = []
        self._back = EvictionRetry(store=store, registry=registry, telemetry=telemetry)
        self.explicit = ExplicitEntries(store, telemetry=telemetry, clock=clock)

    # Hits

    def resident(self, key: str, now_ms: int) -> Resident | None:
        """The entry in memory if it may be served at this moment. No I/O; nothing may be awaited before it is sent."""
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
        if not self._valid(response, now_ms) and (
            now_ms >= response.fresh_until_ms or not self._registry.lagging(response.registrations, now_ms=now_ms)
        ):
            self._store.drop(key, "expired" if now_ms >= response.fresh_until_ms else "invalidated")
        return None

    def kept(self, key: str, now_ms: int) -> Resident | None:
        """The entry in memory if nothing has invalidated it, even if its lifetime is over. No I/O."""
        resident = self._store.resident(key)
        return resident if resident is not None and self._valid(resident.response, now_ms) else None

    def _valid(self, response: CachedResponse, now_ms: int) -> bool:
        return now_ms < max(response.fresh_until_ms, response.stale_until_ms) and (
            not response.registrations or self._registry.live(response.registrations, now_ms=now_ms)
        )

    def use(self, response: CachedResponse, policy: RoutePolicy, asked: reuse.Asked) -> reuse.Use:
        """How an entry may be used for a request now, until something is awaited."""
        now_ms = self.clock()
        if not self._valid(response, now_ms):
            return reuse.Use.VALIDATE
        allowed = reuse.windows(response.headers, policy)
        if shared_cache_rules.is_explicit(response):
            return reuse.use_explicit(response, allowed, asked, now_ms=now_ms)
        return reuse.use_guarded(response, allowed, now_ms=now_ms)

    def rescues(self, response: CachedResponse, policy: RoutePolicy, asked: reuse.Asked) -> bool:
        """Whether an entry may be sent now instead of an error."""
        now_ms = self.clock()
        allowed = reuse.windows(response.headers, policy)
        return self._valid(response, now_ms) and reuse.rescues(response, allowed, asked, now_ms=now_ms)

    def drop(self, key: str) -> None:
        """Forget the entry in memory: something newer is known."""
        self._store.drop(key, "outdated")

    def hold(self, response: CachedResponse) -> Resident | None:
        """Keep something that registrations guard in this process's memory alone; None if it has died meanwhile. No I/O."""
        resident = self._store.keep(response)
        if self.alive(response):
            return resident
        self._store.drop(response.key)
        return None

    def take_served(self) -> list[tuple[tuple[str, ...], int]]:
        """Of each entry that was found since the last call: its registrations and how often. On the event loop."""
        served, self._served = self._served, []
        taken = [(resident.response.registrations, resident.reads) for resident in served]
        for resident in served:
            resident.reads = 0
        return taken

    def absent(self, key: str) -> bool:
        """Whether look() would find nothing, not even something to throw away. No I/O; False if that is not known without."""
        return self._alone and self._store.resident(key) is None

    async def look(self, key: str, flight: Flight | None = None, policy: RoutePolicy | None = None) -> Resident | None:
        """Memory, then the shared store. The result is valid until something is awaited, but its lifetime may be over: see use().

        flight: led by the caller, who will run the handler if there is nothing: another process that does so is
            waited for, unless policy is given and lets a stale answer be sent meanwhile.
        """
        resident = self.resident(key, self.clock())
        if resident is not None or self.flights.store_backs_off(key, now_ms=self.clock()):
            return resident
        try:
            if flight is not None and self.flights.leases is not None:
                response = await flight.fetch_kept(
                    self._usable,
                    keepable=self._keepable,
                    instead=lambda old: policy is not None and self.use(old, policy, {}) is not reuse.Use.VALIDATE,
                )
                response = response and self._store.keep(response).response
            else:
                response = await self._store.get(key)
        except StoreError as error:
            self.telemetry.failure("store", "read_path.lookup_failed", error)
            self.flights.back_off_store(key, now_ms=self.clock())
            return None
        if response is None:
            return self.kept(key, self.clock())
        if not self._keepable(response):
            # Reading it took it into memory.
            self._store.drop(key, "expired" if self.clock() >= response.fresh_until_ms else "invalidated")
            return None
        return self.early.settle(self._store.resident(key) or Resident(response))

    async def renews(self, flight: Flight, old: CachedResponse) -> bool:
        """Whether this process is to make an entry anew before its lifetime ends; see `refresh.leads`."""
        return await refresh.leads(flight, old, usable=self._usable, keep=self._store.keep)

    def _keepable(self, response: CachedResponse) -> bool:
        """Of an entry out of the shared store: whether anything may be done with it."""
        # Another process may keep what only its own lifetime guards; this one promises more unless it was told the same.
        known = response.stored_at_ms >= self._registry.known_since_ms
        if shared_cache_rules.is_explicit(response):
            known = self.settings.explicit
        return known and self._valid(response, self.clock()) and self.explicit.hold(response)

    def _usable(self, response: CachedResponse) -> bool:
        """Of an entry out of the shared store: whether it may be served now."""
        return self._keepable(response) and self.alive(response)

    def alive(self, response: CachedResponse) -> bool:
        """Whether it may be served now, until something is awaited."""
        now_ms = self.clock()
        return now_ms < response.fresh_until_ms and self._valid(response, now_ms)

    async def allow(self, resident: Resident, url: str) -> bool:
        """Let this URL be handed out for this entry: the dependency index knows of it before anyone keeps it.

        False: the answer must go out without leave to keep, or the entry has died meanwhile (ask resident() again).
        """
        response = resident.response
        if len(resident.urls) >= MAX_URLS:
            return False
        try:
            await self._index.add(dependent(response, (url,)))
        except StoreError as error:
            self.telemetry.failure("store", "read_path.index_failed", error)
            return False
        resident.urls.add(url)
        return self.alive(response)

    # Misses

    def serving(self, now_ms: int) -> bool:
        return self._registry.serving(now_ms=now_ms)

    def lagging(self, key: str, now_ms: int) -> bool:
        """Whether there is an entry in memory that cannot be served only because its part of the grid lags. No I/O."""
        resident = self._store.resident(key)
        return resident is not None and self._registry.lagging(resident.response.registrations, now_ms=now_ms)

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
        asked_ms: int | None = None,
        credentials: bool = False,
    ) -> Verdict:
        """Make an entry of an answer: register its reads, tell index and sketch, store it, and see that it is still alive.

        leave: whether others will be allowed to keep copies.
        asked_ms: when the handler was asked; now, if nobody knows.
        credentials: the request carried some that its route says nothing about. Takes one activation and, with Redis,
            two more round trips. After a Verdict other than KEPT nothing of the answer is stored that could ever be
            served.
        """
        asked_ms = self.clock() if asked_ms is None else asked_ms
        answer = in_groups(answer, policy.groups)
        guarded = self.settings.grid
        reasons = [reason for reason in outcome.reasons if not (guarded and waived(policy, reason.reason))]
        if self.settings.explicit:
            if {reason.reason for reason in reasons} == {Uncacheable.NO_READS}:
                return await self._admit_explicit(
                    answer, target, request_headers, policy, asked_ms=asked_ms, credentials=credentials
                )
            refused = freshness.refusal(answer.status, answer.headers, personal=policy.personal)
            refused = "credentials" if credentials else refused
            if refused is not None:
                return Verdict(event=Event.UNGUARDED, reasons=(refused,))
        if reasons:
            return Verdict(
                event=Event.UNGUARDED,
                reasons=tuple(dict.fromkeys(reason.reason.value for reason in reasons)),
                detail="; ".join(reason.detail for reason in reasons),
            )
        reads = outcome.reads + declared_reads(
            policy,
            target,
            deployment=self.settings.scope,
            namespace=self.settings.control_namespace,
            since=since,
        )
        key = self._key(target, answer, request_headers, policy)
        if key is None or self.flights.store_backs_off(key, now_ms=self.clock()):
            return Verdict(event=Event.UNGUARDED, reasons=("vary" if key is None else "failed",))
        window_ms = self._window_ms(answer, policy)
        try:
            with self.telemetry.tracing.span("quaestor.activation", reads=len(reads)):
                registered = await self._registry.register(
                    reads,
                    since=since,
                    expires_at_ms=self.clock() + self.settings.ttl_max_ms + window_ms + 2 * COPY_SLACK_MS,
                )
        except NotCacheableError as error:
            return Verdict(event=Event.UNGUARDED, reasons=error.reasons, detail=str(error))
        except RegistrationRefusedError as error:
            return Verdict(event=Event.UNGUARDED, reasons=(error.reason,), detail=str(error))
        except DependencyError as error:
            self.telemetry.failure("event-layer", "read_path.register_failed", error)
            return Verdict(event=Event.UNGUARDED, reasons=("failed",), detail=str(error))
        now_ms = self.clock()
        response = guarded_entry(
            answer, registered,
            key=key, resource=target.resource, now_ms=now_ms, cost_ms=now_ms - asked_ms,
            ttl_ms=self._ttl_ms(registered, policy, now_ms), window_ms=window_ms,
        )  # fmt: skip
        if response is None:
            self._registry.lease(registered.ids, until_ms=0)
            return Verdict(event=Event.UNGUARDED, reasons=("lifetime",))
        self._registry.lease(registered.ids, until_ms=kept_until_ms(response) + 2 * COPY_SLACK_MS)
        with self.telemetry.stores.store_s.time(), self.telemetry.tracing.span("quaestor.store"):
            verdict = await self._keep(response, target.url, leave=leave, asked_ms=asked_ms)
        if verdict.resident is not None:
            self.telemetry.stores.kept(response)
            if self.settings.debug_header:
                verdict.resident.explain = explaining.depends(outcome.reads, registered)
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

    def _window_ms(self, answer: Answer, policy: RoutePolicy) -> int:
        return min(reuse.windows(answer.headers, policy).longest_ms, self.settings.ttl_max_ms)

    def _ttl_ms(self, registered: Registered, policy: RoutePolicy, now_ms: int) -> int:
        ttl_ms = self._estimator.estimate_ms(
            registered.query_ids, write_rate_hz=registered.write_rate_hz, now_ms=now_ms
        )
        return min(ttl_ms, self.settings.ttl_max_ms, ttl_ms if policy.ttl_ms is None else policy.ttl_ms)

    async def _admit_explicit(
        self,
        answer: Answer,
        target: Target,
        request_headers: Sequence[tuple[bytes, bytes]],
        policy: RoutePolicy,
        *,
        asked_ms: int,
        credentials: bool,
    ) -> Verdict:
        """Without reads: the answer's own fields decide (RFC 9111)."""
        refused = shared_cache_rules.refusal(
            answer.status, answer.headers, credentials=credentials, now_s=self.clock() / 1000
        )
        key = None if refused else self._key(target, answer, request_headers, policy)
        if key is None:
            return Verdict(event=Event.UNGUARDED, reasons=(refused or "vary", Uncacheable.NO_READS.value))
        try:
            resident = await self.explicit.keep(
                answer.status, answer.headers, answer.body,
                key=key, resource=target.resource, asked_ms=asked_ms, policy=policy,
            )  # fmt: skip
        except StoreError as error:
            self.telemetry.failure("store", "read_path.store_failed", error)
            reasons = ("failed", Uncacheable.NO_READS.value)
            return Verdict(event=Event.PART_FAILED, reasons=reasons, detail=str(error))
        if resident is None:
            reasons = ("died", Uncacheable.NO_READS.value)
            return Verdict(event=Event.DIED, reasons=reasons, detail="outdated while it was being fetched")
        return Verdict(event=Event.KEPT, resident=resident)

    async def _keep(self, response: CachedResponse, url: str, *, leave: bool, asked_ms: int) -> Verdict:
        """Index and sketch first, because from the moment an entry is in the store it is handed out."""
        try:
            if leave:
                until_ms, now_ms = response.fresh_until_ms + COPY_SLACK_MS, response.stored_at_ms
                await asyncio.gather(
                    self._index.add(dependent(response, (url,))),
                    self._sketch.report_read(response.resource, expires_at_ms=until_ms, now_ms=now_ms),
                )
            else:
                await self._index.add(dependent(response, ()))
            await self._store.put(response, ttl_ms=kept_until_ms(response) - self.clock())
        except (StoreError, SketchError) as error:
            part = "sketch" if isinstance(error, SketchError) else "store"
            self.telemetry.failure(part, f"read_path.{part}_failed", error)
            await self._undo(response, acknowledged=False)
            return Verdict(event=Event.PART_FAILED, reasons=("failed",), detail=str(error))
        except BaseException:  # cancelled, and perhaps stored: nobody has looked whether it died meanwhile
            self.flights.spawn(self._back.again(response, at_once=True))
            raise
        if not self.alive(response) or not self.explicit.hold(response, asked_ms=asked_ms):
            await self._undo(response, acknowledged=True)
            return Verdict(event=Event.DIED, reasons=("died",), detail="invalidated while it was being stored")
        resident = self._store.resident(response.key)
        if resident is None or resident.response is not response:
            resident = Resident(response)
        resident.urls.add(url)
        return Verdict(event=Event.KEPT, resident=self.early.settle(resident))

    async def _undo(self, response: CachedResponse, *, acknowledged: bool) -> None:
        if not await self._back.take(response, acknowledged=acknowledged):
            self.flights.spawn(self._back.again(response))
