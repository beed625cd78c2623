"""Values that flow through Quaestor. Read this, `ports.py` and `errors.py` first.

All values are frozen. `Version` is MongoDB's cluster time as one integer, `seconds << 32 | increment`: totally ordered across a
replica set, comparable between a read's `operationTime` and a write's `clusterTime`. 0: unknown, older than everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from quaestor.clock import ClockWatch, End, ReadClock
from quaestor.fast_init import fast_init

Version = int
Document = Mapping[str, Any]
SortSpec = tuple[tuple[str, Any], ...]


class Operation(StrEnum):
    """Read commands that capture understands."""

    FIND = "find"
    COUNT = "count"
    DISTINCT = "distinct"
    AGGREGATE = "aggregate"


class WriteKind(StrEnum):
    """Kinds of entries in the write pipelines: writes, and entries that stand for many writes or for none."""

    INSERT = "insert"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    COLLECTION = "collection"
    """Drop, rename, dropDatabase, collMod, re-sharding: everything that depends on `namespace` changes. A namespace
    `database.*` is the whole database. Sent to every write partition, like GAP and TICK."""
    GAP = "gap"
    """Ingest cannot say what happened in between (resume token lost): everything, in every namespace, may have changed."""
    TICK = "tick"
    """No write: every write performed before `wall_ms` has been appended. Proves that ingest, pipeline and node are alive.
    A version other than 0 says that every write up to it has been appended."""


class MatchType(StrEnum):
    """Kinds of changes that a write makes to a query's result."""

    ADD = "add"
    CHANGE = "change"
    CHANGE_INDEX = "changeIndex"
    REMOVE = "remove"
    MATCH = "match"
    """Stateless: the record may concern the query, more is not known (widened dependencies, gaps, collection events)."""
    DUE = "due"
    """No write: the clock changes the result, see clock.ClockWatch."""
    EVICTED = "evicted"
    """No write: the node needed the room, and no longer guards the result."""


class Uncacheable(StrEnum):
    """Reasons why a response is not cached. The value is the label in metrics, in `explain` and in the debug header."""

    CLOCK = "clock"
    """The query names a time that follows the clock, or $$NOW: it goes stale without any write."""
    RANDOM = "random"
    """$sample or $rand."""
    VIEW = "view"
    """A view that cannot be resolved to its collection."""
    TIME_SERIES = "time-series"
    """Time-series collections have no change streams."""
    TRANSACTION = "transaction"
    """Reads inside a multi-document transaction see a snapshot of their own."""
    SNAPSHOT = "snapshot"
    """The read asked for a point in time older than the retention."""
    WROTE = "wrote"
    """The request wrote to the database."""
    DECLARED = "declared"
    """The handler reported a read that Quaestor cannot see."""
    NO_READS = "no-reads"
    """No captured read: nothing is known of what the response depends on."""
    UNCAPTURED = "uncaptured"
    """A command by a client without the capture: its reads are not registered, so no write to them can invalidate."""
    READ_FAILED = "read-failed"
    """A captured read failed or did not finish before the response."""
    UNREADABLE = "unreadable"
    """A command that capture does not understand."""
    SERVER_SIDE_SCRIPT = "server-side-script"
    """$where, $function, $accumulator, mapReduce: arbitrary code."""
    NO_OPERATION_TIME = "no-operation-time"
    """The reply carries no operationTime (a standalone mongod): the read cannot be dated."""


class Reason(NamedTuple):
    """Reason why one response must not be cached, and what in particular led to it."""

    reason: Uncacheable
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterImage:
    """After-image: one write, as the change stream delivered it.

    namespace: `database.collection`; `*` for GAP and TICK.
    key: the record's `_id` (a BSON value); None for COLLECTION, GAP and TICK.
    after: the whole record after the write; None for deletes and when it was already gone at look-up.
    after_exact: `after` is the image of this very write (insert, replace, post-image), not a later look-up.
    before: the whole record before the write, when the collection records pre-images.
    before_known: `before` is authoritative, None included (an insert had no predecessor).
    changed: of an update, the paths that it touched: everything that differs between the images lies at or below one
        of them. None: not known. Positions in arrays are components; a dot may also be part of a field's name.
        Of COLLECTION: only indexes changed that begin with these fields; `$**`: any index. None: anything changed.
        A poll that lists indexes puts their keys into `after`, as `index_keys`.
    wall_ms: when the database performed the write (ms since the epoch); for TICK, when ingest read that far.
    """

    namespace: str
    kind: WriteKind
    version: Version
    key: Any = None
    after: Document | None = None
    after_exact: bool = False
    before: Document | None = None
    before_known: bool = False
    changed: tuple[str, ...] | None = None
    wall_ms: int = 0

    @property
    def of_indexes(self) -> bool:
        """Whether nothing but indexes changed."""
        return self.kind is WriteKind.COLLECTION and self.changed is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Query: one read command, reduced to the parts that decide its result.

    filter: the find/count/distinct filter, {} if absent. Empty for aggregate.
    sort: ((path, 1 | -1 | {"$meta": ...}), ...), in order; () if absent.
    limit: 0 means none; a single-batch negative limit is stored as its absolute value.
    projection: as sent, or None. A projection decides which changes matter, never which records match.
    pipeline: aggregate only.
    distinct_key: distinct only.
    collation: as sent, or the collection's default; None for simple binary comparison.
    let: variables of the command ($expr), or None.
    text_index: definition of the collection's text index, as list_indexes gives it, if the filter holds $text and it
        is known; without it such a query is widened.
    index_keys: fields of the collection's indexes, in their order, if the database may order the result by them and that could
        show otherwise unseen; `$*` alone: there is one on each field; `$**`: they are not known.
    clock: the filter or leading $match with moments (planning/timed_conditions.py); None: no time is known to follow the clock.
    widened: if set, why this query depends on *any* write to its namespace instead of on what it matches.
    """

    namespace: str
    operation: Operation
    filter: Document
    sort: SortSpec = ()
    skip: int = 0
    limit: int = 0
    projection: Document | None = None
    pipeline: tuple[Document, ...] = ()
    distinct_key: str | None = None
    collation: Document | None = None
    let: Document | None = None
    text_index: Document | None = None
    index_keys: tuple[tuple[str, ...], ...] = ()
    clock: Document | None = None
    widened: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRead:
    """Captured read: one query that a handler ran, and what its reply says about when and what it read.

    read_at: the reply's operationTime. Writes up to it *may* be contained in the result.
    ids: the `_id` of every record returned, in order. None if the result was not read to its end, if it hides them, or if the
    command returns no records (count, distinct, most aggregates).
    last: the last of these records, if the query has a sort and a limit.
    primary: the command went to the primary. A secondary's data may be older than what ingest has already seen.
    duration_ms: how long command and getMores took.
    digest: of everything that was returned, in order; None: not known.
    asked: the query on a view that `query` stands for; None: it was asked as it is.
    clock: exactly if the query has one.
    """

    query: Query
    read_at: Version
    ids: tuple[Any, ...] | None
    last: Document | None = None
    primary: bool = True
    duration_ms: float = 0.0
    digest: bytes | None = None
    asked: Query | None = None
    clock: ReadClock | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributors:
    """Contributing records of a result, from one snapshot: they decide the result, though it does not show them.

    version: of the snapshot: every write up to it is contained, none after.
    records: in the result's order, each with its `_id` and its deciding fields. Of a distinct: the field that holds the values.
    Of an ordered window: the sort fields of the first and the last record that it shows.
    complete: these are all of them.
    digests: of each record as the result shows it (planning/member_digests.py); empty: not known.
    placed: every record that the window shows has the fields that it is ordered by.
    """

    version: Version
    records: tuple[Document, ...]
    complete: bool
    digests: tuple[bytes, ...] = ()
    placed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Registration of a cached query result, as the matching nodes need it. The unit of validity: a registration is activated,
    and later invalidated at most once. A cached response is valid while all of its registrations are live.

    id: unique for ever (invalidation/registry/registration_ids.py); the origin in it names the app process that will act on
        notifications first, the hash at its end tells the query partition.
    query_id: hash of the normalised query: equal queries share it, in every process. Decides the partition.
    since: every write up to it was visible to the read (it had been seen by ingest before the read began). Nodes
        replay what is newer.
    read_at: see CapturedRead. A write in (since, read_at] may or may not be in the result. An image there that contradicts the
        result, or touches a member, invalidates; one that agrees with the result does not.
    members: the `_id`s of the result in order, or None if unknown (count, distinct, projections without _id, ...).
    last: order fields and _id of the last member, as a document; of a full result with a limit, ordered by a sort or by its
    filter ($near, $text by score). None otherwise, or if the projection hides one of these fields: then every matching write
    invalidates.
    expires_at_ms: when the nodes may forget the registration silently.
    contributors: read after the result, and sent by registering once more under the same id. None: not known, so the images of
    each write decide. Images up to their version are judged without them: no such image changed the result, because the
    registration lives. The snapshot therefore holds the records that made the result.
    digest, asked: see CapturedRead; the app keeps them, nodes do not receive them.
    watch: exactly if the query has a clock.
    """

    id: str
    tenant: str
    query_id: str
    query: Query
    since: Version
    read_at: Version
    members: tuple[Any, ...] | None
    last: Document | None
    expires_at_ms: int
    contributors: Contributors | None = None
    digest: bytes | None = None
    asked: Query | None = None
    watch: ClockWatch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """Cancellation of registrations whose results are gone from every cache: stop matching for them."""

    tenant: str
    query_id: str
    registration_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage report of one app process: the reads that it has answered from cache since its last report, by query. The reads show
    how much is saved by guarding these queries. A hint: lost or repeated reports do no harm, nodes cap what they believe.

    queries: (query_id, reads).
    registrations: (registration id, reads) of other processes' registrations, whose query the reporting process does not know;
    sent to every query partition.
    """

    tenant: str
    queries: tuple[tuple[str, int], ...] = ()
    registrations: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """Cell: one matching node of the grid, a query partition crossed with a write partition."""

    query_partition: int
    write_partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GridShape:
    """Shape of the grid: its cells, by their partitions.

    generation: counts how often the deployment was partitioned anew; each has pipelines of its own.
    """

    query_partitions: int
    write_partitions: int
    generation: int = 0

    @property
    def cells(self) -> list[Cell]:
        """All cells, one query partition after the other."""
        queries, writes = range(self.query_partitions), range(self.write_partitions)
        return [Cell(query_partition=query, write_partition=write) for query in queries for write in writes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activated:
    """Activation: one cell matches this registration from now on and has replayed what it had to.

    write_rate_hz: summed write rate of the registration's members in this cell (writes per second), for the TTL.
    """

    registration_id: str
    cell: Cell
    write_rate_hz: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Refusal: one cell cannot match this registration (older than its retention, node full, bad query). Do not cache."""

    registration_id: str
    cell: Cell
    reason: str


class OutsideGrid(StrEnum):
    """A source of invalidations that is no cell of the grid. The value is its name on the wire."""

    NAME = "name"
    """An app process that named the registrations, or the labels that they stand for."""


InvalidationSource = Cell | OutsideGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalidated:
    """The end of these registrations: a write changed (or, for widened queries, may have changed) the result behind them.
    Delivered at least once; acting on it twice is harmless.

    version: that of the write; 0 if there was none.
    written_at_ms: when the database performed the write (ms since the epoch); without a write, the time of the report.
    source: the sender of the invalidation. A cell reports for its own partitions only.
    exact: the query is exact, and the write was judged by it; otherwise more writes count than change the result.
    certain: the write has changed the result; otherwise running the query again may show it as it was.
    """

    registration_ids: tuple[str, ...]
    query_id: str
    match_type: MatchType
    version: Version
    key: Any
    written_at_ms: int
    source: InvalidationSource
    exact: bool = False
    certain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Heartbeat: one cell's sign of life.

    fresh_as_of_ms: wall_ms of the newest TICK that went through ingest, pipeline and this cell. The results that the cell guards
        are invalidated for every write that the database performed before then.
    watermark: newest version that this cell has seen.
    matched: newest version up to which this cell has matched every write and published the invalidations; 0: not known.
    """

    cell: Cell
    shape: GridShape
    at_ms: int
    fresh_as_of_ms: int
    watermark: Version
    registrations: int
    writes: int
    matched: Version = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """Renewal of a registration that a write may have changed. Its query was run again and has the same result, and every cell
    has activated its next round. The app process that ran the query sends it (docs/adr/0015-recheck-before-evicting.md).

    registration_id: id of the registration in the round that is active now.
    """

    registration_id: str


Notification = Activated | Refused | Invalidated | Heartbeat | Renewed


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CachedResponse:
    """Cached response: a stored answer of HTTP.

    headers: raw (lower-case name, value) pairs as the application sent them, in order, duplicates kept, without the
        ones the cache computes per hit (Age, Cache-Status).
    etag: quoted, strong unless the handler set a weak one.
    stored_at_ms, fresh_until_ms: how long our stores use it; hits carry Age = now - stored_at. An answer that was old when
        it came was stored so much earlier.
    copies_until_ms: how long copies outside may be used that are handed out now; a process that hands out later copies renews it.
        0: until fresh_until_ms, and the Cache Sketch does not know of them.
    stale_until_ms: how long it is kept after that, to be used stale (RFC 5861) or to be validated; its registrations
        are guarded until then. 0: not at all.
    cost_ms: how long it took to make it; 0: not known.
    registrations: the ids of every registration it depends on. Valid only while all are live.
    tags: surrogate keys; the first is this response's own.
    resource: the key clients look up in the Cache Sketch.
    partition: token of the partition of the sketch where they look; empty: the union.
    ends: see End.
    """

    key: str
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    etag: bytes
    stored_at_ms: int
    fresh_until_ms: int
    registrations: tuple[str, ...]
    tags: tuple[str, ...]
    resource: str
    stale_until_ms: int = 0
    cost_ms: int = 0
    copies_until_ms: int = 0
    partition: str = ""
    ends: End = End.NEITHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependent:
    """Dependent: a cache key and the copies made of it, to be removed when one of `registrations` is invalidated.

    resource: its Cache Sketch key, with the partition if it is in one.
    urls: absolute URLs handed out (for CDNs that purge by URL).
    tags: see CachedResponse.
    copies_until_ms: no copy outside our own stores can be alive after this.
    """

    key: str
    registrations: tuple[str, ...]
    resource: str
    urls: tuple[str, ...]
    tags: tuple[str, ...]
    copies_until_ms: int
