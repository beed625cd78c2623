"""Ports: the seams between the parts.

Each has an in-memory implementation, at least one real one, and a conformance suite that all of them run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol, runtime_checkable

from quaestor.model import CachedResponse, CapturedRead, Dependent, Query, Version


class StreamEntry(NamedTuple):
    """Entry of a pipeline.

    offset: opaque, ordered within its stream; it survives restarts.
    """

    stream: str
    offset: str
    payload: bytes


class EventLayer(Protocol):
    """Event layer: append-only pipelines, retained and replayable. Synchronous: it runs in Spark tasks and in threads.

    Order: entries of one stream are read in the order they were appended. Delivery: at least once, by offset; nothing
    is removed by reading. Offsets: "0" is before everything. Raises EventLayerError when the server does not answer and
    EventLayerResetError when it came back without its data. Payloads are opaque bytes. Safe to use from several threads.

    immediate: append never waits for anybody, so an event loop may call it.
    """

    immediate: bool

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        """Append all payloads, in order, in one round trip; either all become visible or an error is raised."""

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        """Entries after the given offset of each stream, at most `count` a stream, waiting up to block_ms for the first.

        block_ms = 0 does not wait. Empty list on time-out. An entry comes together with all earlier entries of the streams named
        before its own (unless there are `count` of these).
        """

    def offset_at(self, stream: str, at_ms: int) -> str:
        """An offset such that reading after it yields every retained entry appended at or after at_ms."""

    def first_offset(self, stream: str) -> str | None:
        """Offset of the oldest retained entry; None if the stream is empty. Tells a reader whether it missed entries."""

    def trim(self, stream: str, *, before_ms: int) -> None:
        """Forget entries appended before before_ms."""

    def put(self, name: str, value: bytes) -> None:
        """Keep a small named value (resume token, checkpoint) beside the streams."""

    def get(self, name: str) -> bytes | None:
        """The value that was put under this name last; None if there is none."""

    def close(self) -> None:
        """Let go of the server. Nothing is called afterwards but reopen()."""

    def reopen(self) -> None:
        """Let it be used again after close(); otherwise nothing. One in memory is empty then, and its old offsets are of another
        epoch."""


class PipelineSize(NamedTuple):
    """Size of a pipeline.

    entries: how many it retains.
    bytes: what they take in the server, roughly.
    at_ms: the moment, by the clock that dates entries.
    """

    entries: int
    bytes: int
    at_ms: int


@runtime_checkable
class MeasuredPipelines(Protocol):
    """An event layer that can tell how large its pipelines are."""

    def measure(self, stream: str) -> PipelineSize:
        """Size of one pipeline. O(1). Raises EventLayerError."""

    def trim_and_measure(self, before_ms: Mapping[str, int | None]) -> dict[str, PipelineSize]:
        """Trim each of these pipelines, unless None; how large each is then. One round trip for each server that has some.

        Raises EventLayerError; some may have been trimmed then.
        """


@runtime_checkable
class LeasingLayer(EventLayer, Protocol):
    """An event layer whose small values processes can hold for a time, or replace only if nobody else has.

    Each call is one atomic round trip. Raises EventLayerError.
    """

    def lease(self, name: str, holder: str, *, lease_ms: int) -> bool:
        """Take or prolong a lease. Returns whether this holder has it now: nobody else had.

        lease_ms: after so long it ends by itself, by the server's clock.
        """

    def release(self, name: str, holder: str) -> None:
        """End the lease, if this holder has it."""

    def leaseholder(self, name: str) -> str | None:
        """The holder of a lease; None if nobody has it."""

    def swap(self, name: str, before: bytes | None, value: bytes) -> bool:
        """Put a value in place of `before`, None: of nothing. Returns False, and does nothing, if another is there."""


class Guarded(Protocol):
    """Guarded entry: what stands for one, and not for the next one under the same key. A CachedResponse or a Dependent."""

    @property
    def key(self) -> str:
        """Cache key."""

    @property
    def registrations(self) -> tuple[str, ...]:
        """Ids of the registrations that guard it."""


class ResponseStore(Protocol):
    """Store of responses by key. Losing an entry is always allowed; returning another one never is. Raises StoreError."""

    async def get(self, key: str) -> CachedResponse | None:
        """The entry under this key; None if there is none."""

    async def put(self, response: CachedResponse, *, ttl_ms: int) -> None:
        """Keep a response under its key, instead of the one before, for at most ttl_ms."""

    async def evict(self, dead: Sequence[Guarded]) -> None:
        """Remove these entries, unless others with other registrations have taken their place."""

    async def clear(self) -> None:
        """Remove everything."""


class Turn(Enum):
    """Turn to fetch what the shared store has not got."""

    MINE = auto()
    """The asking process, which holds the lease from now on."""
    THEIRS = auto()
    """Another process holds the lease."""
    UNCOALESCED = auto()
    """Everybody for himself: the answer cannot be shared."""


class Leases(Protocol):
    """Leases of a response store that lets one of all processes fetch what is missing. Losing a lease is always allowed: then two
    fetch the same. Every call is one atomic round trip. Raises StoreError."""

    async def take(
        self, key: str, *, holder: str, lease_ms: int, passing: CachedResponse | None = None
    ) -> CachedResponse | Turn:
        """Return the entry; if there is none, or only the entry to pass over, the turn to fetch it.

        holder: unique per attempt.
        """

    async def renew(self, key: str, *, holder: str, lease_ms: int) -> None:
        """Prolong the lease: its holder is still at work."""

    async def release(self, key: str, *, holder: str, uncoalesced_ms: int) -> None:
        """End the lease: its holder is done.

        uncoalesced_ms: for so long nobody gets or needs a lease; 0: the next one takes it.
        """


class DependencyIndex(Protocol):
    """Index of dependents: registration -> the cache keys and outside copies that depend on it. Durable until the effects are
    settled.

    An invalidation is worked off as claim -> effects -> settle. A claimant that dies in between leaves its claim. Another process
    reclaims it after the lease, so no purge is lost. Every call is one atomic round trip. Raises StoreError.
    """

    async def add(self, dependent: Dependent) -> None:
        """Add a dependent. Must return before the response is handed to anyone with leave to keep it."""

    async def claim(self, registration_ids: Sequence[str], *, now_ms: int) -> list[Dependent]:
        """Take over the effects for what depends on any of these; a second claim of the same yields nothing."""

    async def settle(self, dependents: Sequence[Dependent]) -> None:
        """Forget these claims: their effects are done."""

    async def reclaim(self, *, claimed_before_ms: int, now_ms: int) -> list[Dependent]:
        """Claims taken before then and never settled, claimed anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDependent:
    """Dependent whose effects were begun: it is claimed, and the sketch knows.

    outside_ms: remaining lifetime of the longest-lived copy outside our own stores; 0: no copy, no purge needed.
    evicted: its entry is gone from the shared store as well.
    """

    dependent: Dependent
    outside_ms: int
    evicted: bool


class SharedInvalidation(Protocol):
    """Shared invalidation: the first three effects of an invalidation as one operation; atomic where index, sketch and store
    share a server.
    """

    async def claim_and_evict(
        self, registration_ids: Sequence[str], entries: Sequence[Guarded], *, now_ms: int
    ) -> list[ClaimedDependent]:
        """Claim what depends on these registrations, report it as written, evict its entries, those named in `entries` for
        certain. The claims stay until DependencyIndex.settle(). Raises StoreError or SketchError; repeating it is safe, and
        a claim whose answer was lost on the way is reclaimed after the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchState:
    """State of a Cache Sketch beside its filters.

    off: clients leave everything to the network.
    partitions: tokens of the partitions with their own filter.
    removed: keys that have left the union since the sketch was begun.
    """

    off: bool = False
    partitions: frozenset[str] = frozenset()
    removed: int = 0


class CacheSketch(Protocol):
    """Server side of the Cache Sketch. Keys are resources (path and sorted query string), or such in a partition
    (`cache_sketch.partitions.in_partition`). Atomic. Raises SketchError."""

    @property
    def epoch(self) -> str:
        """Random number that the tokens of its partitions begin with, if it is forgotten with its process; empty: it is not."""

    async def report_read(self, resource: str, *, expires_at_ms: int, now_ms: int) -> None:
        """Note that a copy was handed out that may live until expires_at_ms; the latest expiry wins, it never shrinks."""

    async def report_write(self, resources: Sequence[str], *, now_ms: int) -> list[int]:
        """Note that the resources changed: put each that may still have a living copy into the filter until that copy is dead.

        Without resources only the time counts.

        Returns, for each, the remaining lifetime in ms of the longest-lived copy; 0: no copy, no purge needed.
        """

    async def saturate(self, until_ms: int, *, earlier: bool = False) -> None:
        """Report everything as changed until then: what was handed out is no longer known.

        earlier: nothing is lost but what was handed out before this sketch was made. One with an epoch then reports no partition
            that it knows.
        """

    async def snapshot(self, *, now_ms: int, partition: str = "") -> bytes:
        """The flat filter of a partition as bytes that `pybloom_live.BloomFilter.fromfile` loads; the union of all, without a
        partition and for one that is not known."""

    async def state(self, *, now_ms: int) -> SketchState:
        """The state of it beside its filters."""

    async def switch(self, *, off: bool) -> None:
        """Switch the sketch off or on. While it is off, clients leave everything to the network. Every process that shares the
        sketch follows."""


class CdnAdapter(Protocol):
    """Adapter of one CDN. Purges are effective when purge() returns; raises CdnError (retryable) otherwise."""

    name: str

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Headers that make this CDN remember the tags of a response."""

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        """Remove every object with any of the tags, or under any of the URLs, whichever this CDN can."""

    async def aclose(self) -> None:
        """Close its connections. Nothing is called afterwards."""


@runtime_checkable
class BoundedCdn(Protocol):
    """A CDN adapter that knows whether its CDN takes purges as fast as there are."""

    def copies_live_ms(self) -> int | None:
        """Longest life of copies in this CDN that are handed out now; None: as long as otherwise. No I/O."""


@runtime_checkable
class LifetimeCdn(Protocol):
    """A CDN adapter whose CDN learns from other fields than CDN-Cache-Control how long it may keep an answer."""

    def lifetime_headers(self, *, lives_s: int, until_s: int) -> list[tuple[bytes, bytes]]:
        """Return the headers for this lifetime; none if CDN-Cache-Control suffices.

        lives_s: counted from when the answer's Age was 0.
        until_s: its end, in seconds since the epoch.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Registrations of one response, activated.

    ids: one per distinct query, and before them, if others rely on the first of those too, one that is the response's
        own: it names the response, and no cell knows of it.
    query_ids: the queries, in the same order.
    tags: surrogate keys; the first is this response's own and is enough to purge it, the last is every response's.
    write_rate_hz: summed write rate of all members.
    widened: reasons of the queries that were widened, empty if all are exact.
    queries: these queries, as they were registered: of views on their collections, with what their collections add.
    rechecked: how many of these are run again before what relies on them is evicted.
    """

    ids: tuple[str, ...]
    query_ids: tuple[str, ...]
    tags: tuple[str, ...]
    write_rate_hz: float
    widened: tuple[str, ...]
    queries: tuple[Query, ...] = ()
    rechecked: int = 0


class QueryRegistry(Protocol):
    """The app's side of the grid: registers what a response read and knows which registrations are live."""

    def watermark(self) -> Version:
        """Newest version seen from the grid; taken before the handler runs, it is the registration's `since`."""

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        """Register what a response read; returns when every cell concerned has activated every query and none was invalidated
        meanwhile.

        Raises RegistrationRefusedError otherwise. Raises NotCacheableError if a read cannot be guarded (a view that does not
        resolve, a time-series collection). The response may then be sent; no cache may store it.
        """

    def lease(self, registration_ids: Sequence[str], *, until_ms: int, cost_ms: int = 0) -> None:
        """Note that the copies guarded by these registrations are dead after until_ms; the grid may forget them then.

        cost_ms: what the answer has cost that relies on them; 0: not known.
        """

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """Whether a response with these registrations may be served now. No I/O, no lock: called on every hit."""

    def held(self, registration_ids: Sequence[str]) -> bool:
        """Whether one of these is not live only because its query is being run again, after a write that may have changed its
        result. No I/O."""

    async def settled(self, registration_ids: Sequence[str]) -> None:
        """Returns when none of these is held any more, live or dead, or after a bound (setting `recheck_ms`)."""

    def renewals(self, registration_ids: Sequence[str]) -> int:
        """A number that grows when one of these lives on after it was held: in between its result may have been another one."""

    @property
    def known_since_ms(self) -> int:
        """The moment before which it is not known of what others stored whether it was invalidated."""

    def lagging(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """Whether nothing proves these fresh now, because their part of the grid lags behind. If they are not dead, they are as
        good as before once it has caught up. No I/O."""

    def serving(self, *, now_ms: int) -> bool:
        """Whether a part of the grid at least is fresh enough for anything to be served from cache or stored."""

    def caught_up(self, *, now_ms: int) -> bool:
        """Whether all of the grid is fresh: every change that is older than the staleness bound has been reported."""


class OwnWritesBarrier(Protocol):
    """Barrier for the answers to requests that wrote: once passed, this process serves nothing older than their writes."""

    def expect(self) -> None:
        """Note that a request comes that will probably write. Never waits, never raises."""

    async def passed(self, version: Version) -> None:
        """Returns when nothing older than this version is served any more, or when the time for it is over. Never raises.

        version: of the newest write; 0: nobody knows, and nothing is waited for.
        """


class LifetimeEstimator(Protocol):
    """Estimator of how long a result will probably live. Pure arithmetic over its observations; no I/O, no clock. Observations
    may come in any order, and never raise."""

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """Lifetime in ms of a response made of these queries, within the bounds of the implementation. Asking changes nothing.

        write_rate_hz: of all their records together.
        kind: what else is known of results like this one counts for it too: its collection, or its route.
        """

    def observe_read(
        self,
        query_ids: Sequence[str],
        *,
        now_ms: int,
        ttl_ms: int | None = None,
        given_ms: int | None = None,
        write_rate_hz: float = 0.0,
        kind: str = "",
    ) -> None:
        """Note that these results were read from the database, and are guarded from now on for ttl_ms; None: until further
        notice.

        given_ms: the estimate that copies outside were given for their lifetime; None: none was, or another one.
        write_rate_hz, kind: as they were when it was estimated.
        """

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """Note that the result of this query has changed."""

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """Note that this is no longer guarded, though nothing was written: what happens from now on is not seen."""
