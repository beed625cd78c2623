"""Effects of an invalidation: claim, update the sketch and evict (one operation), then purge, then settle.

The sketch comes before the CDN. No client can then fetch a sketch without the key after the caches are clean. A claim is
settled only when every purge is acknowledged. If a process dies before that, another process reclaims its claims. Each step is
idempotent, so a repetition is harmless.

A process acts at once for its own registrations, and a moment later for those of other processes, in case they died. An answer
sent just before its invalidation may reach the CDN after the purge. Such keys are purged again.

A second call evicts entries from the shared store that this process does not hold in memory. The purge does not wait for that
call. A process that has read the notification refuses the entry, because its registration is dead. A purged CDN could fetch the
old answer again only from a process that lags behind in reading notifications. A lagging process may hold the entry in its own
memory, which no eviction reaches. Waiting for the eviction would therefore not close the gap. The second purge closes the
gap: it comes `repurge_after_ms` after the eviction and the first purge, when no earlier look-up is still on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from quaestor.errors import EventLayerError, SketchError, StoreError
from quaestor.invalidation.effects.cause import Cause, precision_of
from quaestor.invalidation.effects.effects_finishing import EffectsFinishing
from quaestor.invalidation.effects.progress import EffectsProgress
from quaestor.invalidation.effects.purging import Purging
from quaestor.invalidation.effects.until_done import RETRY_S, until_done
from quaestor.invalidation.registry.registration_ids import round_of
from quaestor.invalidation.registry.surrogate_tags import everything_tag
from quaestor.model import Dependent, Invalidated, MatchType
from quaestor.observability.tracing import tell, versions_text
from quaestor.ports import (
    CdnAdapter,
    Guarded,
    LifetimeEstimator,
)
from quaestor.read_path.entries import COPY_SLACK_MS
from quaestor.read_path.local_store import EntryStorage
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.runtime.supervision.supervisor import KeptTask
from quaestor.store.invalidation_steps import StepByStep
from quaestor.tasks import Rests

Answer = TypeVar("Answer")

FOREIGN_DELAY_S = 1.0
"""Time that the owner of a registration has for its effects, before other processes act."""
CLAIM_LEASE_MS = 10_000
"""Age of an unsettled claim from which another process takes it over."""
BATCH = 200
"""Registrations in a round trip, or entries if there are more: keeps a script in Redis to a few milliseconds."""
_LONGEST_REST_S: Final = 0.01
"""Longest rest between two batches."""


class Registrations(Protocol):
    """Registrations of this process, in the view of its effects: see Registry."""

    origin: str

    def keep_dead(self, registration_ids: Sequence[str]) -> None:
        """Remember these dead registrations for longer."""

    def cancel(self, registration_ids: Sequence[str]) -> None:
        """Let the grid forget these registrations: no entry relies on them any more."""

    def resume(self) -> None:
        """End a reset: all entries stored before it are gone."""


class Effects:
    """Effects of invalidations in one process, and the tasks that carry them out.

    notify() and reset() may be called from any thread. `telemetry.hooks` notifies observers.

    forget: drops entries of dead registrations, of any process, from this process's memory, and returns them.
    finishing: finishes the effects of claimed entries.
    progress: how many of the notified invalidations are done.
    announce: reports dead registrations to every process; None: there is no other process.
    """

    def __init__(
        self,
        registrations: Registrations,
        storage: EntryStorage,
        estimator: LifetimeEstimator,
        process: ProcessContext,
        *,
        forget: Callable[[Sequence[str]], Sequence[Guarded]],
        progress: EffectsProgress | None = None,
        announce: Callable[[Sequence[str]], Awaitable[None]] | None = None,
    ) -> None:
        self._process = process
        self._storage = storage
        self._share = storage.share or StepByStep(index=storage.index, sketch=storage.sketch, store=storage.store)
        self._registrations = registrations
        self._forget = forget
        self._estimator = estimator
        self._errands = process.supervisor.errands("effects")
        self.finishing = EffectsFinishing(storage, self._errands, process)
        self.progress = progress or EffectsProgress()
        self._waiting: dict[str, Cause] = {}
        self._draining = False
        self._rests = Rests(_LONGEST_REST_S)
        self._announce = announce
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kept: set[KeptTask] = set()

    @property
    def cdn(self) -> list[CdnAdapter]:
        """CDNs to purge."""
        return self.finishing.cdn

    @property
    def purging(self) -> Purging:
        """Purging of the CDNs."""
        return self.finishing.purging

    async def start(self) -> None:
        """Begin. Invalidations notified before the start are left to other processes."""
        self._waiting.clear()
        self._draining = False
        self.progress.begin_anew()
        self._loop = asyncio.get_running_loop()
        self._keep("reclaim", self._reclaim)

    async def stop(self) -> None:
        """End the work under way and accept none. Another process takes over the claims that are not settled."""
        self._loop = None
        for kept in list(self._kept):
            await kept.aclose()
        self._kept.clear()
        await self._errands.aclose()
        await self.finishing.stop()

    def notify(self, invalidated: Sequence[Invalidated]) -> None:
        """Act on these invalidations; called by the registry's reading thread after it has marked them dead."""
        refused_at_ms = self._process.clock()
        self._submit(lambda loop: self._enqueue(invalidated, refused_at_ms, loop))

    def reset(self, why: str, *, earlier: bool = False) -> None:
        """Forget all stored entries, and let clients revalidate all their copies: none can be trusted.

        earlier: spare the copies that this process hands out from now on, see `CacheSketch.saturate`.
        """
        self._submit(lambda _: self._keep("reset", partial(self._start_over, why, earlier=earlier)))

    def purge_again(self, dependent: Dependent) -> None:
        """Purge an answer that died while it was being sent: a CDN may have stored it after the purge."""
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
        self._kept.add(self._process.supervisor.keep(name, work))

    def _enqueue(self, invalidated: Sequence[Invalidated], refused_at_ms: int, loop: asyncio.AbstractEventLoop) -> None:
        own: dict[str, Cause] = {}
        foreign: dict[str, Cause] = {}
        for notification in invalidated:
            if notification.match_type is MatchType.EVICTED:  # nothing was written, so the estimator learns no lifetime
                self._process.telemetry.invalidations.withdrawn.inc(len(notification.registration_ids))
                self._estimator.observe_withdrawal(notification.query_id, now_ms=refused_at_ms)
                cause = Cause(None, refused_at_ms, "withdrawn")
            else:
                count = self._process.telemetry.invalidations.invalidations.labels(
                    notification.match_type.value, precision_of(notification)
                )
                count.inc(len(notification.registration_ids))
                self._estimator.observe_invalidation(notification.query_id, now_ms=refused_at_ms)
                cause = Cause(
                    notification.written_at_ms, refused_at_ms, precision_of(notification), notification.version
                )
            for i in notification.registration_ids:
                (own if i.startswith(self._registrations.origin) else foreign)[i] = cause
        for i, entry in self._forgotten(own):
            own[i] = own[i]._replace(entries=(*own[i].entries, entry))
        self._work_off(own)
        if foreign:
            self._forgotten(foreign)
            loop.call_later(FOREIGN_DELAY_S, self._unless_stopped, lambda _: self._work_off(foreign), loop)

    def _forgotten(self, causes: Mapping[str, Cause]) -> list[tuple[str, Guarded]]:
        """Drop the entries of these causes from this process's memory; return them by registration."""
        guarded_entries = [
            (i, entry) for entry in self._forget(list(causes)) for i in entry.registrations if i in causes
        ]
        for i, entry in guarded_entries:
            self._process.telemetry.stores.removals.judged(entry.key, causes[i].precision)
        return guarded_entries

    def _work_off(self, causes: Mapping[str, Cause]) -> None:
        self.progress.began(len(causes.keys() - self._waiting.keys()))
        self._waiting.update(causes)
        if self._waiting and not self._draining:
            self._draining = True
            self._keep("invalidations", self._drain)

    async def _reclaim(self) -> None:
        """Take over claims of ended processes, once a second.

        The sketch receives the time before the index forgets anything by it. Both must know when the clock is set back.
        """
        while True:
            await asyncio.sleep(1.0)
            try:
                now_ms = self._process.clock()
                await self._storage.sketch.report_write((), now_ms=now_ms)
                orphans = await self._storage.index.reclaim(claimed_before_ms=now_ms - CLAIM_LEASE_MS, now_ms=now_ms)
            except (StoreError, SketchError) as error:
                part = "sketch" if isinstance(error, SketchError) else "store"
                self._process.telemetry.failure(part, "effects.reclaim_failed", error)
                continue
            if orphans:
                self._process.telemetry.event("effects.reclaimed", dependents=len(orphans))
                self._spawn(self._take_over(orphans))

    async def _drain(self) -> None:
        """Claim and evict waiting registrations batch by batch, with a rest in between.

        Registrations that arrive during a batch form the next one. Under load an invalidation therefore costs fewer round
        trips. All waiting registrations are refused already, so their effects may come a moment later. While the index does
        not answer, no invalidation is lost, and no dead entry is served.
        """
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
            except Exception as error:  # the next batch runs at once; the claim is taken over later
                self._process.supervisor.service("invalidations").errand_failed(error)
            finally:
                self.progress.claimed(len(causes))
                self._rests.worked(begun_s)
        self.progress.all_claimed()
        self._draining = False

    async def _invalidate(self, causes: Mapping[str, Cause]) -> None:
        """Claim, update the sketch and evict. The other effects run in their own task, because a CDN may be slow."""
        ids = list(causes)
        with self._process.telemetry.tracing.span("quaestor.invalidation", registrations=len(ids)) as span:
            if span is not None:
                tell(span, versions=versions_text(cause.version for cause in causes.values()))
            await self._claim_and_evict(ids, causes)

    async def _claim_and_evict(self, ids: Sequence[str], causes: Mapping[str, Cause]) -> None:
        entries = list({id(entry): entry for cause in causes.values() for entry in cause.entries}.values())
        with self._process.telemetry.tracing.span("quaestor.claim", entries=len(entries)):
            claimed = await until_done(
                self._process.telemetry,
                "store",
                lambda: self._share.claim_and_evict(ids, entries, now_ms=self._process.clock()),
                meanwhile=lambda: self._registrations.keep_dead(ids),
            )
        if claimed:
            self._process.telemetry.invalidations.evicted.inc(len(claimed))
            self._tell_taken_over([i for i in ids if not i.startswith(self._registrations.origin)])
            # The other queries of these entries guard nothing any more, unless other entries rely on them.
            self._registrations.cancel([i for claim in claimed for i in claim.dependent.registrations])
            left = [claim.dependent for claim in claimed if not claim.evicted]
            outside = [claim.dependent for claim in claimed if claim.outside_ms > 0]
            dependents, gone = [claim.dependent for claim in claimed], self.progress.finishing()
            try:
                self._spawn(self.finishing.finish(dependents, left, outside, causes, self._process.clock(), gone))
            except BaseException:
                gone()  # the effects are not finished here: their claims are taken over later
                raise

    def _tell_taken_over(self, foreign: Sequence[str]) -> None:
        """Report as dead the foreign registrations whose effects this process has begun.

        Their owner may be alive, and may renew them later than the wait here. Their entries are no longer in the index, so no
        process may go on using them.
        """
        renewable = [i for i in foreign if round_of(i) is not None]
        if renewable and self._announce is not None:
            self._spawn(self._announced(renewable, self._announce))

    async def _announced(self, names: Sequence[str], announce: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        while True:
            try:
                return await announce(names)
            except EventLayerError as error:
                self._process.telemetry.failure("event-layer", "effects.verdict_not_told", error)
                await asyncio.sleep(RETRY_S)

    async def _take_over(self, orphans: Sequence[Dependent]) -> None:
        """Finish the effects of a claimant that died: the entries are claimed, and perhaps no other effect was done."""
        lifetimes_ms = await until_done(
            self._process.telemetry,
            "sketch",
            lambda: self._storage.sketch.report_write([d.resource for d in orphans], now_ms=self._process.clock()),
        )
        self._process.telemetry.invalidations.evicted.inc(len(orphans))
        self._tell_taken_over([i for orphan in orphans for i in orphan.registrations])
        outside = [d for d, left_ms in zip(orphans, lifetimes_ms, strict=True) if left_ms > 0]
        await self.finishing.finish(orphans, orphans, outside, {}, self._process.clock())

    async def _start_over(self, why: str, *, earlier: bool) -> None:
        """Clear the stores, let every client revalidate, and purge all CDNs with tags, after a reset."""
        self._process.telemetry.event("effects.reset", why=why)
        await until_done(self._process.telemetry, "store", self._storage.store.clear)
        until_ms = self._process.clock() + self._process.settings.lifetimes.ttl_max_ms + COPY_SLACK_MS
        await until_done(
            self._process.telemetry, "sketch", lambda: self._storage.sketch.saturate(until_ms, earlier=earlier)
        )
        self._registrations.resume()
        await self.purging.purge_tag(everything_tag(self._process.settings.scope), until_ms=until_ms)
