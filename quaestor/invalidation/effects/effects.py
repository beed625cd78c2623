"""Effects of an invalidation: claim, tell the sketch and evict (one operation), purge, settle.

The sketch comes before the CDN, so that no client can fetch a sketch without the key after the caches are clean. A claim is
settled only when every purge was acknowledged; a process that dies in between leaves it to be reclaimed by another. Each
step is idempotent, so doing them twice is harmless.

A process acts at once for the registrations it made itself, and a moment later for those of others, in case they died.
An answer that was handed out just before its invalidation may reach the CDN after the purge: such keys are purged again.

An entry that this process does not hold in memory is evicted from the shared store by a second call, and the purge does
not wait for that one. Could the CDN then, purged, fetch the old answer again from our own stores? A process that has read the
notification refuses the entry, evicted or not, in memory or in Redis: its registration is dead. Only one that lags behind in
reading notifications would still serve it, and that one may hold it in its own memory, which no eviction reaches; so waiting
for the eviction would not close that gap. What closes it is the second purge: it comes `repurge_after_ms` after both the
eviction and the first purge are done, when nothing that was found before is still on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from quaestor.clock import Clock
from quaestor.errors import EventLayerError, SketchError, StoreError
from quaestor.invalidation.effects.cause import Cause, precision_of
from quaestor.invalidation.effects.progress import EffectsProgress
from quaestor.invalidation.effects.purging import Purging
from quaestor.invalidation.effects.settling import Settling
from quaestor.invalidation.effects.until_done import RETRY_S, until_done
from quaestor.invalidation.registry.registration_ids import round_of
from quaestor.invalidation.registry.surrogate_tags import everything_tag
from quaestor.model import Dependent, Invalidated, MatchType
from quaestor.observability.hooks import InvalidationDone
from quaestor.observability.telemetry import Telemetry
from quaestor.observability.tracing import tell, versions_text
from quaestor.ports import (
    CacheSketch,
    CdnAdapter,
    DependencyIndex,
    Guarded,
    LifetimeEstimator,
    ResponseStore,
    SharedInvalidation,
)
from quaestor.read_path.entries import COPY_SLACK_MS
from quaestor.runtime.supervision.supervisor import KeptTask, Supervisor
from quaestor.settings import Settings
from quaestor.store.invalidation_steps import StepByStep
from quaestor.tasks import Rests

Answer = TypeVar("Answer")

FOREIGN_DELAY_S = 1.0
"""How long the process that made a registration has to act on it before the others do."""
CLAIM_LEASE_MS = 10_000
"""How long a claim may stay unsettled before another process takes it over."""
BATCH = 200
"""Registrations a round trip, or entries if there are more: keeps a script in Redis to a few milliseconds."""
_LONGEST_REST_S: Final = 0.01
"""Between two batches."""


class Registrations(Protocol):
    """Registrations of this process, as far as effects need to know them: see Registry."""

    origin: str

    def keep_dead(self, registration_ids: Sequence[str]) -> None:
        """Remember for longer that these are dead."""

    def cancel(self, registration_ids: Sequence[str]) -> None:
        """Let the grid forget these: what relied on them is gone."""

    def resume(self) -> None:
        """End a reset: everything that was stored before it is gone."""


class Effects:
    """Effects of invalidations in one process, and the tasks that work them off. notify() and reset() may be called from any
    thread; observers are told through `telemetry.hooks`.

    forget: drops from this process's memory what dead registrations guarded, whoever made them, and returns it.
    share: claims, tells the sketch and evicts in one operation; by default one after the other.
    cdn: CDNs to purge.
    progress: how far what was notified is worked off.
    announce: tells every process that registrations are dead; None: there is no other.
    purging: of the CDNs.
    """

    def __init__(
        self,
        *,
        registrations: Registrations,
        store: ResponseStore,
        forget: Callable[[Sequence[str]], Sequence[Guarded]],
        index: DependencyIndex,
        sketch: CacheSketch,
        estimator: LifetimeEstimator,
        settings: Settings,
        telemetry: Telemetry,
        clock: Clock,
        share: SharedInvalidation | None = None,
        progress: EffectsProgress | None = None,
        announce: Callable[[Sequence[str]], Awaitable[None]] | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor(telemetry)
        self._share = share or StepByStep(index=index, sketch=sketch, store=store)
        self._registrations = registrations
        self._store = store
        self._forget = forget
        self._index = index
        self._sketch = sketch
        self._estimator = estimator
        self._settings = settings
        self._telemetry = telemetry
        self._clock = clock
        self.cdn: list[CdnAdapter] = []
        self.purging = Purging(self.cdn, telemetry=telemetry, clock=clock)
        self.progress = progress or EffectsProgress()
        self._settling = Settling(index, telemetry, self._supervisor)
        self._waiting: dict[str, Cause] = {}
        self._draining = False
        self._rests = Rests(_LONGEST_REST_S)
        self._announce = announce
        self._loop: asyncio.AbstractEventLoop | None = None
        self._errands = self._supervisor.errands("effects")
        self._kept: set[KeptTask] = set()

    async def start(self) -> None:
        """Begin. What was notified before is nobody's here."""
        self._waiting.clear()
        self._draining = False
        self.progress.begin_anew()
        self._loop = asyncio.get_running_loop()
        self._keep("reclaim", self._reclaim)

    async def stop(self) -> None:
        """End what is under way, and begin nothing more; what was claimed and not settled is taken over by another process."""
        self._loop = None
        for kept in list(self._kept):
            await kept.aclose()
        self._kept.clear()
        await self._errands.aclose()
        await self._settling.stop()

    def notify(self, invalidated: Sequence[Invalidated]) -> None:
        """Act on these; called by the registry's reading thread after it has marked them dead."""
        refused_at_ms = self._clock()
        self._submit(lambda loop: self._enqueue(invalidated, refused_at_ms, loop))

    def reset(self, why: str, *, earlier: bool = False) -> None:
        """Forget everything that is stored, and let clients revalidate all they have: nothing of it can be trusted.

        earlier: but what this process hands out, see `CacheSketch.saturate`.
        """
        self._submit(lambda _: self._keep("reset", partial(self._start_over, why, earlier=earlier)))

    def purge_again(self, dependent: Dependent) -> None:
        """Purge what died while it was being sent: a CDN may have stored it only after the purge."""
        self._submit(lambda _: self._spawn(self.purging.again(dependent)))

    def _submit(self, act: Callable[[asyncio.AbstractEventLoop], object]) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop was closed: the process is ending
                loop.call_soon_threadsafe(self._unless_stopped, act, loop)

    def _unless_stopped(
        self, act: Callable[[asyncio.AbstractEventLoop], object], loop: asyncio.AbstractEventLoop
    ) -> None:
        if loop is self._loop:
            act(loop)

    def _spawn(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        return self._errands.start(work)

    def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run work until it returns, whatever it raises."""
        self._kept = {kept for kept in self._kept if not kept.done}
        self._kept.add(self._supervisor.keep(name, work))

    def _enqueue(self, invalidated: Sequence[Invalidated], refused_at_ms: int, loop: asyncio.AbstractEventLoop) -> None:
        own: dict[str, Cause] = {}
        foreign: dict[str, Cause] = {}
        for one in invalidated:
            if one.match_type is MatchType.EVICTED:  # nothing was written, so there is nothing to learn from it
                self._telemetry.invalidations.withdrawn.inc(len(one.registration_ids))
                self._estimator.observe_withdrawal(one.query_id, now_ms=refused_at_ms)
                cause = Cause(None, refused_at_ms, "withdrawn")
            else:
                count = self._telemetry.invalidations.invalidations.labels(one.match_type.value, precision_of(one))
                count.inc(len(one.registration_ids))
                self._estimator.observe_invalidation(one.query_id, now_ms=refused_at_ms)
                cause = Cause(one.written_at_ms, refused_at_ms, precision_of(one), one.version)
            for i in one.registration_ids:
                (own if i.startswith(self._registrations.origin) else foreign)[i] = cause
        for i, entry in self._forgotten(own):
            own[i] = own[i]._replace(entries=(*own[i].entries, entry))
        self._work_off(own)
        if foreign:
            self._forgotten(foreign)
            loop.call_later(FOREIGN_DELAY_S, self._unless_stopped, lambda _: self._work_off(foreign), loop)

    def _forgotten(self, causes: Mapping[str, Cause]) -> list[tuple[str, Guarded]]:
        """Entries that these causes took out of this process's memory, by registration."""
        found = [(i, entry) for entry in self._forget(list(causes)) for i in entry.registrations if i in causes]
        for i, entry in found:
            self._telemetry.stores.removals.judged(entry.key, causes[i].precision)
        return found

    def _work_off(self, causes: Mapping[str, Cause]) -> None:
        self.progress.began(len(causes.keys() - self._waiting.keys()))
        self._waiting.update(causes)
        if self._waiting and not self._draining:
            self._draining = True
            self._keep("invalidations", self._drain)

    async def _reclaim(self) -> None:
        """Once a second: claims whose claimant has ended.

        The sketch hears of the time before the index forgets anything by it: if the clock is set back, both must know.
        """
        while True:
            await asyncio.sleep(1.0)
            try:
                now_ms = self._clock()
                await self._sketch.report_write((), now_ms=now_ms)
                orphans = await self._index.reclaim(claimed_before_ms=now_ms - CLAIM_LEASE_MS, now_ms=now_ms)
            except (StoreError, SketchError) as error:
                part = "sketch" if isinstance(error, SketchError) else "store"
                self._telemetry.failure(part, "effects.reclaim_failed", error)
                continue
            if orphans:
                self._telemetry.event("effects.reclaimed", dependents=len(orphans))
                self._spawn(self._take_over(orphans))

    async def _drain(self) -> None:
        """Claim and evict what waits, again and again, with a rest in between. What comes in meanwhile is the next batch, so the
        busier it gets the fewer round trips an invalidation costs: it is refused already, and what follows may come a moment
        later. While the index is away nothing is lost, and nothing dead is served."""
        while self._waiting:
            begun_s = await self._rests.over()
            causes: dict[str, Cause] = {}
            entries = 0
            while self._waiting and entries < BATCH:
                i = next(iter(self._waiting))
                causes[i] = self._waiting.pop(i)
                entries += max(1, len(causes[i].entries))
            try:
                await self._invalidate(causes)
            except Exception as error:  # the next batch does not wait for a restart; the claim is taken over later
                self._supervisor.service("invalidations").errand_failed(error)
            finally:
                self.progress.claimed(len(causes))
                self._rests.worked(begun_s)
        self.progress.all_claimed()
        self._draining = False

    async def _invalidate(self, causes: Mapping[str, Cause]) -> None:
        """Claim, sketch and evict; the rest follows in a task of its own, because a CDN may take long."""
        ids = list(causes)
        with self._telemetry.tracing.span("quaestor.invalidation", registrations=len(ids)) as span:
            if span is not None:
                tell(span, versions=versions_text(cause.version for cause in causes.values()))
            await self._claim_and_evict(ids, causes)

    async def _claim_and_evict(self, ids: Sequence[str], causes: Mapping[str, Cause]) -> None:
        entries = list({id(entry): entry for cause in causes.values() for entry in cause.entries}.values())
        with self._telemetry.tracing.span("quaestor.claim", entries=len(entries)):
            claimed = await until_done(
                self._telemetry,
                "store",
                lambda: self._share.claim_and_evict(ids, entries, now_ms=self._clock()),
                meanwhile=lambda: self._registrations.keep_dead(ids),
            )
        if claimed:
            self._telemetry.invalidations.evicted.inc(len(claimed))
            self._tell_taken_over([i for i in ids if not i.startswith(self._registrations.origin)])
            # Its other queries guard nothing any more, unless others rely on them.
            self._registrations.cancel([i for one in claimed for i in one.dependent.registrations])
            left = [one.dependent for one in claimed if not one.evicted]
            outside = [one.dependent for one in claimed if one.outside_ms > 0]
            dependents, gone = [one.dependent for one in claimed], self.progress.finishing()
            try:
                self._spawn(self._finish(dependents, left, outside, causes, self._clock(), gone))
            except BaseException:
                gone()  # nobody finishes these: their claims are taken over later
                raise

    def _tell_taken_over(self, foreign: Sequence[str]) -> None:
        """Tell everybody that these are dead, whose effects the process that made them has not begun. It may live, and have
        renewed them later than we waited for: what relies on them is not in the index any more, so nobody may go on using it."""
        renewable = [i for i in foreign if round_of(i) is not None]
        if renewable and self._announce is not None:
            self._spawn(self._announced(renewable, self._announce))

    async def _announced(self, names: Sequence[str], announce: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        while True:
            try:
                return await announce(names)
            except EventLayerError as error:
                self._telemetry.failure("event-layer", "effects.verdict_not_told", error)
                await asyncio.sleep(RETRY_S)

    async def _take_over(self, orphans: Sequence[Dependent]) -> None:
        """What a claimant that died has left: claimed already, perhaps nothing more."""
        lifetimes_ms = await until_done(
            self._telemetry,
            "sketch",
            lambda: self._sketch.report_write([d.resource for d in orphans], now_ms=self._clock()),
        )
        self._telemetry.invalidations.evicted.inc(len(orphans))
        self._tell_taken_over([i for one in orphans for i in one.registrations])
        outside = [d for d, left_ms in zip(orphans, lifetimes_ms, strict=True) if left_ms > 0]
        await self._finish(orphans, orphans, outside, {}, self._clock())

    async def _finish(
        self,
        dependents: Sequence[Dependent],
        left: Sequence[Dependent],
        outside: Sequence[Dependent],
        causes: Mapping[str, Cause],
        evicted_at_ms: int,
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        """left: those whose entries may be in a store yet.
        outside: those of which there are copies in a CDN.
        gone: called when they are evicted and purged, or nobody tries any more.
        """
        purged_at_ms = None
        try:
            eviction = self._spawn(self._evict(left)) if left else None
            purged = await self.purging.put(outside)
            if self.purging.remembers:  # the outbox does, so nobody needs to take this over
                self._settle(dependents, eviction)
            if purged is not None:
                await purged()
                purged_at_ms = self._clock()
            if eviction is not None:
                evicted_at_ms = await eviction
        finally:
            gone()
        self._observe(dependents, causes, evicted_at_ms, purged_at_ms)
        if self.purging.remembers:
            return
        if purged is not None:
            # An answer that left before the invalidation may reach the CDN after the purge. Tags belong to one
            # registration, so this second purge cannot hit the copy that has replaced it. The outbox does the same by itself.
            await asyncio.sleep(self._settings.cdn.repurge_after_ms / 1000)
            again = await self.purging.put(outside)
            if again is not None:
                await again()
        self._settling.later(dependents)

    def _settle(self, dependents: Sequence[Dependent], eviction: asyncio.Task[int] | None) -> None:
        """Settle these, when they are evicted."""

        def evicted(task: asyncio.Task[int]) -> None:
            if not task.cancelled() and task.exception() is None:
                self._settling.later(dependents)

        if eviction is None:
            self._settling.later(dependents)
        else:
            eviction.add_done_callback(evicted)

    async def _evict(self, dependents: Sequence[Dependent]) -> int:
        with self._telemetry.tracing.span("quaestor.evict", entries=len(dependents)):
            await until_done(self._telemetry, "store", lambda: self._store.evict(dependents))
        return self._clock()

    def _observe(
        self,
        dependents: Sequence[Dependent],
        causes: Mapping[str, Cause],
        evicted_at_ms: int,
        purged_at_ms: int | None,
    ) -> None:
        for dependent in dependents:
            known = (causes[i] for i in dependent.registrations if i in causes)
            cause = next((cause for cause in known if cause.written_at_ms is not None), None)
            if cause is None or cause.written_at_ms is None:
                continue  # withdrawn without a write, or a claim that was taken over: nobody knows any more what it was for
            written_at_ms = cause.written_at_ms
            self._telemetry.invalidations.latency_s.observe(max(0, evicted_at_ms - written_at_ms) / 1000)
            if purged_at_ms is not None:
                self._telemetry.invalidations.purge_latency_s.observe(max(0, purged_at_ms - written_at_ms) / 1000)
            done = InvalidationDone(
                keys=(dependent.key,),
                written_at_ms=written_at_ms,
                refused_at_ms=cause.refused_at_ms,
                evicted_at_ms=evicted_at_ms,
                purged_at_ms=purged_at_ms,
                exact=cause.precision == "exact",
            )
            self._telemetry.hooks.invalidations.tell(done)

    async def _start_over(self, why: str, *, earlier: bool) -> None:
        """After a reset: nothing stored survives, here or in a CDN with tags, and every client revalidates."""
        self._telemetry.event("effects.reset", why=why)
        await until_done(self._telemetry, "store", self._store.clear)
        until_ms = self._clock() + self._settings.lifetimes.ttl_max_ms + COPY_SLACK_MS
        await until_done(self._telemetry, "sketch", lambda: self._sketch.saturate(until_ms, earlier=earlier))
        self._registrations.resume()
        await self.purging.purge_tag(everything_tag(self._settings.scope), until_ms=until_ms)
