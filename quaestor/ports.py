"""Ports: the interfaces between the parts.

Each port has an in-memory implementation, at least one real one, and a conformance suite that all of them run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol, runtime_checkable

from quaestor.fast_init import fast_init
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

    immediate: whether append never waits, so that an event loop may call it.
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
        """Offset for reading every retained entry that was appended at or after at_ms."""

    def first_offset(self, stream: str) -> str | None:
        """Offset of the oldest retained entry; None if the stream is empty. Tells a reader whether it missed entries."""

    def trim(self, stream: str, *, before_ms: int) -> None:
        """Remove entries appended before before_ms."""

    def put(self, name: str, value: bytes) -> None:
        """Keep a small named value (resume token, checkpoint) beside the streams."""

    def get(self, name: str) -> bytes | None:
        """Value that was put under this name last; None if there is none."""

    def close(self) -> None:
        """Close the connection to the server. No method except reopen() is called afterwards."""

    def reopen(self) -> None:
        """Make the layer usable again after close(); otherwise do nothing. A layer in memory is then empty, and its old offsets
        belong to another epoch."""


class PipelineSize(NamedTuple):
    """Size of a pipeline.

    entries: number of retained entries.
    bytes: rough size of the entries in the server.
    at_ms: time of the measurement, by the clock that dates entries.
    """

    entries: int
    bytes: int
    at_ms: int


@runtime_checkable
class MeasuredPipelines(Protocol):
    """Event layer that can measure its pipelines."""

    def measure(self, stream: str) -> PipelineSize:
        """Size of one pipeline. O(1). Raises EventLayerError."""

    def trim_and_measure(self, before_ms: Mapping[str, int | None]) -> dict[str, PipelineSize]:
        """Trim each of these pipelines, unless None, and return their sizes. One round trip for each server that has some.

        Raises EventLayerError; some pipelines may have been trimmed then.
        """


@runtime_checkable
class ReadingAppends(Protocol):
    """Event layer that returns a small value along with an append, where both lie on one server."""

    def append_and_get(self, stream: str, payloads: Sequence[bytes], name: str) -> bytes | None:
        """Append as `append` does; return what `get` returns for this name afterwards."""


@runtime_checkable
class LeasingLayer(EventLayer, Protocol):
    """Event layer whose small values a process can lease for a time, or replace only if no other process has replaced them.

    Each call is one atomic round trip. Raises EventLayerError.
    """

    def lease(self, name: str, holder: str, *, lease_ms: int) -> bool:
        """Take or prolong a lease. Returns whether this holder has it now; it does unless another holder has it.

        lease_ms: time after which the lease ends by itself, by the server's clock.
        """

    def release(self, name: str, holder: str) -> None:
        """End the lease, if this holder has it."""

    def leaseholder(self, name: str) -> str | None:
        """Holder of a lease; None if there is none."""

    def swap(self, name: str, before: bytes | None, value: bytes) -> bool:
        """Replace the value `before` (None: no value). Returns False, and changes nothing, if another value is there."""


class Guarded(Protocol):
    """Guarded entry: identifies one entry, and not the next one under the same key. A CachedResponse or a Dependent."""

    @property
    def key(self) -> str:
        """Cache key."""

    @property
    def registrations(self) -> tuple[str, ...]:
        """Ids of the registrations that guard it."""


class ResponseStore(Protocol):
    """Store of responses by key. Losing an entry is always allowed; returning another one never is. Raises StoreError."""

    async def get(self, key: str) -> CachedResponse | None:
        """Entry under this key; None if there is none."""

    async def put(self, response: CachedResponse, *, ttl_ms: int) -> None:
        """Store a response under its key, in place of the earlier one, for at most ttl_ms."""

    async def evict(self, dead: Sequence[Guarded]) -> None:
        """Remove these entries, unless others with other registrations have taken their place."""

    async def clear(self) -> None:
        """Remove everything."""


class Turn(Enum):
    """Turn to fetch an answer that the shared store does not have."""

    MINE = auto()
    """The asking process, which holds the lease from now on."""
    THEIRS = auto()
    """Another process holds the lease."""
    UNCOALESCED = auto()
    """Each process fetches for itself, because the answer cannot be shared."""


class Leases(Protocol):
    """Leases of a response store, by which one of all processes fetches a missing answer. Losing a lease is always allowed: two
    processes then fetch the same. Every call is one atomic round trip. Raises StoreError."""

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

        uncoalesced_ms: time in which no process gets or needs a lease; 0: the next one takes it.
        """


class DependencyIndex(Protocol):
    """Index of dependents: registration -> the cache keys and outside copies that depend on it. Durable until the effects are
    settled.

    The effects of an invalidation are claimed, done and settled. If a claimant dies in between, its claim stays. Another process
    reclaims it after the lease, so no purge is lost. Every call is one atomic round trip. Raises StoreError.
    """

    async def add(self, dependent: Dependent) -> None:
        """Add a dependent. Must return before any client receives the response with permission to keep it."""

    async def claim(self, registration_ids: Sequence[str], *, now_ms: int) -> list[Dependent]:
        """Claim the dependents of these registrations, to do their effects. A second claim of the same yields nothing."""

    async def settle(self, dependents: Sequence[Dependent]) -> None:
        """Remove these claims: their effects are done."""

    async def reclaim(self, *, claimed_before_ms: int, now_ms: int) -> list[Dependent]:
        """Claim anew the claims that were taken before then and never settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDependent:
    """Dependent whose effects have begun: it is claimed, and the sketch knows it.

    outside_ms: remaining lifetime of the longest-lived copy outside Quaestor's own stores; 0: no copy, no purge needed.
    evicted: whether its entry is gone from the shared store as well.
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
        """Claim the dependents of these registrations, report them as written, and evict their entries, at least those in
        `entries`. The claims stay until DependencyIndex.settle(). Raises StoreError or SketchError. Repeating the call is safe,
        and a claim whose answer was lost on the way is reclaimed after the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchState:
    """State of a Cache Sketch beside its filters.

    off: whether clients send every request to the network.
    partitions: tokens of the partitions with their own filter.
    removed: number of keys that have left the union since the sketch was new.
    """

    off: bool = False
    partitions: frozenset[str] = frozenset()
    removed: int = 0


class CacheSketch(Protocol):
    """Server side of the Cache Sketch. Keys are resources (path and sorted query string), or resources in a partition
    (`cache_sketch.partitions.in_partition`). Atomic. Raises SketchError."""

    @property
    def epoch(self) -> str:
        """Random number at the start of its partitions' tokens, if the sketch is lost with its process; empty: it is not."""

    async def report_read(self, resource: str, *, expires_at_ms: int, now_ms: int) -> None:
        """Note that a copy was handed out that may live until expires_at_ms. Only the latest expiry counts."""

    async def report_write(self, resources: Sequence[str], *, now_ms: int) -> list[int]:
        """Note that the resources changed. Each that may still have a living copy is in the filter until that copy is dead.

        Without resources only the time counts.

        Returns, for each, the remaining lifetime in ms of the longest-lived copy; 0: no copy, no purge needed.
        """

    async def saturate(self, until_ms: int, *, earlier: bool = False) -> None:
        """Report everything as changed until then, because the copies handed out are no longer known.

        earlier: whether only the copies from before this sketch are unknown. A sketch with an epoch then does not saturate the
            partitions that it knows.
        """

    async def snapshot(self, *, now_ms: int, partition: str = "") -> bytes:
        """Flat filter of a partition, as bytes that `pybloom_live.BloomFilter.fromfile` loads. Without a partition, and for an
        unknown one, the union of all."""

    async def state(self, *, now_ms: int) -> SketchState:
        """State of the sketch beside its filters."""

    async def switch(self, *, off: bool) -> None:
        """Switch the sketch off or on. While it is off, clients send every request to the network. Every process that shares the
        sketch follows."""


class CdnAdapter(Protocol):
    """Adapter of one CDN. Purges are effective when purge() returns; raises CdnError (retryable) otherwise."""

    name: str

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Headers that make this CDN remember the tags of a response."""

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        """Remove every object with any of the tags, or under any of the URLs, whichever this CDN supports."""

    async def aclose(self) -> None:
        """Close the adapter's connections. No method is called afterwards."""


@runtime_checkable
class BoundedCdn(Protocol):
    """CDN adapter that knows whether its CDN accepts purges as fast as they come."""

    def copies_live_ms(self) -> int | None:
        """Longest life of copies that are handed out to this CDN now; None: no special limit. No I/O."""


@runtime_checkable
class LifetimeCdn(Protocol):
    """CDN adapter whose CDN reads the lifetime of an answer from other fields than CDN-Cache-Control."""

    def lifetime_headers(self, *, lives_s: int, until_s: int) -> list[tuple[bytes, bytes]]:
        """Return the headers for this lifetime; none if CDN-Cache-Control suffices.

        lives_s: lifetime, counted from the moment when the answer's Age was 0.
        until_s: end of the lifetime, in seconds since the epoch.
        """


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Activated registrations of one response.

    ids: one per distinct query. If other responses rely on the first of those too, an id of the response's own stands before
        them: it names the response, and no cell knows it.
    query_ids: the queries, in the same order.
    tags: surrogate keys; the first is this response's own and is enough to purge it, the last is every response's.
    write_rate_hz: summed write rate of all members.
    widened: reasons of the queries that were widened, empty if all are exact.
    queries: the queries as they were registered: on the collections behind views, with the additions of their collections.
    rechecked: number of queries that are run again before their results are evicted.
    valid_until_ms: when a record begins or ceases to match by the clock alone; None: never.
    """

    ids: tuple[str, ...]
    query_ids: tuple[str, ...]
    tags: tuple[str, ...]
    write_rate_hz: float
    widened: tuple[str, ...]
    queries: tuple[Query, ...] = ()
    rechecked: int = 0
    valid_until_ms: int | None = None


class QueryRegistry(Protocol):
    """The app's side of the grid: registers what a response read and knows which registrations are live."""

    def watermark(self) -> Version:
        """Newest version received from the grid. Read before the handler runs, it becomes the registration's `since`."""

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        """Register the reads of a response. Returns when every cell concerned has activated every query, and none was invalidated
        meanwhile.

        Raises RegistrationRefusedError otherwise. Raises NotCacheableError if a read cannot be guarded (a view that does not
        resolve, a time-series collection). The response may then be sent; no cache may store it.
        """

    def lease(self, registration_ids: Sequence[str], *, until_ms: int, cost_ms: int = 0) -> None:
        """Note that the copies guarded by these registrations are dead after until_ms; the grid may forget them then.

        cost_ms: cost of the answer that relies on them; 0: not known.
        """

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """Whether a response with these registrations may be served now. No I/O, no lock: called on every hit."""

    def held(self, registration_ids: Sequence[str]) -> bool:
        """Whether one of these is held: not live only because its query is being run again, after a write that may have changed
        its result. No I/O."""

    async def settled(self, registration_ids: Sequence[str]) -> None:
        """Wait until none of these is held any more, live or dead, or until a bound (setting `recheck_ms`) is over."""

    def renewals(self, registration_ids: Sequence[str]) -> int:
        """Number that grows when one of these lives on after it was held. In between its result may have been another one."""

    @property
    def known_since_ms(self) -> int:
        """Moment before which invalidations of other processes' entries may be unknown here."""

    def lagging(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        """Whether these cannot be proved fresh now, because their part of the grid lags behind. If they are not dead, they are
        valid again once it has caught up. No I/O."""

    def serving(self, *, now_ms: int) -> bool:
        """Whether at least a part of the grid is fresh enough to serve or store any answer."""

    def caught_up(self, *, now_ms: int) -> bool:
        """Whether the whole grid is fresh: every change that is older than the staleness bound has been reported."""


class OwnWritesBarrier(Protocol):
    """Barrier for the answers to requests that wrote: once passed, this process serves nothing older than their writes."""

    def expect(self) -> None:
        """Note the begin of a request that will probably write. Never waits, never raises."""

    async def passed(self, version: Version) -> None:
        """Wait until nothing older than this version is served any more, or until the time for it is over. Never raises.

        version: version of the newest write; 0: not known, and the call does not wait.
        """


class LifetimeEstimator(Protocol):
    """Estimator of a result's probable lifetime. Pure arithmetic over its observations; no I/O, no clock. Observations may come
    in any order, and never raise."""

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """Lifetime in ms of a response made of these queries, within the bounds of the implementation. Asking changes nothing.

        write_rate_hz: write rate of all their records together.
        kind: kind of the result, its collection or its route; observations of this kind count for the estimate too.
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
        """Note that these results were read from the database, and are guarded from now on for ttl_ms; None: without a
        known end.

        given_ms: estimate that copies outside received as their lifetime; None: none, or another lifetime.
        write_rate_hz, kind: the values at the time of the estimate.
        """

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """Note that the result of this query has changed."""

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """Note that this result is no longer guarded, though it was not written. Later changes are not seen."""
