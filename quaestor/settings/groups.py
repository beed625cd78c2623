"""Groups of settings: each class is the table of its settings, with unit, default, bounds and a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from warnings import warn

from quaestor.errors import ConfigurationError
from quaestor.settings.bounds import Form, check, choice, number, switch, text, texts, whole

_YEAR_MS = 366 * 86_400_000
_MIB = 1024 * 1024
_MOST_BYTES = 1024**5
_MOST = 10**9
_FIELD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}")
_FIELDS = Form(
    description="a name of a request field such as 'user-agent', or 'client-address', 'scope.name', 'state.name'",
    fits=lambda name: _FIELD.fullmatch(name) is not None and name != "*",
)
_NAMESPACE = Form(description="'database.collection'", fits=lambda name: all(name.partition(".")))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings of the stores: budgets, admission, compression, the request's parts in the cache key, invalidation by hand."""

    memory_bytes: int = whole(64 * _MIB, "bytes", 0, _MOST_BYTES, "Budget of the store in each process.")
    shared_bytes: int = whole(
        512 * _MIB, "bytes", 1, _MOST_BYTES,
        "Budget of the entries in Redis, shared by all processes. Pipelines have budgets of their own (docs/cluster.md).",
    )  # fmt: skip
    max_body_bytes: int = whole(
        2 * _MIB, "bytes", 0, _MOST_BYTES, "The largest body that is stored. Larger bodies are streamed through."
    )
    doorkeeper_share: float = number(
        0.5, 0, 1,
        "Highest break-even. On a route where a smaller share of the entries is used even once than storing needs to pay, the "
        "second request stores an answer. 0: the first request always does (docs/admission.md).",
    )  # fmt: skip
    compress_above_bytes: int = whole(4096, "bytes", 0, _MOST_BYTES, "Larger entries are compressed in Redis.")
    compression_level: int = whole(
        3, "", 0, 19, "Level of Zstandard: 1 is fast, 19 is small. 0: nothing is compressed."
    )
    partial_answers: bool = switch(
        False,
        "Parts of answers (206) are stored too. Parts are combined and completed, up to `max_body_bytes` an entry "
        "(docs/http.md).",
    )
    ignored_fields: tuple[str, ...] = texts(
        "Names of request fields that decide no answer, although the application reads them. 'client-address' names "
        "the client's address; 'scope.name' and 'state.name' name entries of the scope and the state (docs/privacy.md).",
        _FIELDS,
    )
    sort_query: bool = switch(
        False,
        "The order of query parameters with different names does not matter: `?a=1&b=2` and `?b=2&a=1` share an entry. "
        "A route's own `sort_query` goes first.",
    )
    control_namespace: str = text(
        "quaestor.control",
        "Database and collection of invalidations by tag and by URL; they are removed at once.",
        _NAMESPACE,
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchSettings:
    """Settings of the Cache Sketch. Entries, bytes and partitions are the same in all processes of a deployment."""

    sketch_delta_s: int = whole(
        10, "s", 1, 3_600, "The highest age of a Cache Sketch that clients rely on: the bound of their staleness."
    )
    sketch_off: bool = switch(
        False,
        "Clients send every request to the network. `quaestor sketch --off` has the same effect without a restart "
        "(docs/sketch_clients.md).",
    )
    trust_new_sketch: bool = switch(
        False,
        "A deployment without a sketch has no clients with copies. Off: a new sketch names everything until "
        "`ttl_max_ms` is over, because the sketch before it may have been lost.",
    )
    sketch_entries: int = whole(
        20_000, "", 1, 10_000_000,
        "Number of outdated resources that the sketch has room for. With more of them, lifetimes of copies shrink.",
    )  # fmt: skip
    sketch_false_positives: float = number(
        0.065, 0, 1, "Share of the other resources that a full sketch may name as well.", excluded=(0, 1)
    )
    sketch_bytes: int = whole(14_600, "bytes", 100, 32_000, "The largest size of the sketch.")
    sketch_partitions: tuple[str, ...] = texts(
        "Collections with a filter of their own: 'shop.items'; 'group=shop.items' for a filter that several share; "
        "'*' for each further collection."
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeSettings:
    """Settings of lifetimes: of entries, and of copies outside."""

    ttl_min_ms: int = whole(1_000, "ms", 1, _YEAR_MS, "The shortest estimated lifetime of copies in CDNs and browsers.")
    ttl_max_ms: int = whole(
        3_600_000, "ms", 1, _YEAR_MS,
        "The longest lifetime of copies in CDNs and browsers, and of entries: so long an entry is guarded.",
    )  # fmt: skip
    ttl_quantile: float = number(
        0.5, 0, 1, "Probability that a result changes before its first estimated lifetime ends.", excluded=(0, 1)
    )
    client_ttl: str = choice(
        "sketch", ("sketch", "none", "estimated"),
        "Lifetime of copies in clients. 'sketch': browsers revalidate with their ETag; clients with the Cache Sketch "
        "read a lifetime from a field of its own. 'none': all clients revalidate. 'estimated': browsers keep copies, so "
        "each of them must consult the Cache Sketch.",
    )  # fmt: skip
    early_refresh: float = number(
        1.0, 0, 1_000,
        "A popular entry is renewed in the background before its lifetime ends: on average this many times its own "
        "cost earlier. 0: never.",
    )  # fmt: skip
    clock_window_ms: int = whole(
        300_000, "ms", 0, _YEAR_MS,
        "A time in a query, finer than a minute, counts as the present time if it is closer to the request than this.",
    )  # fmt: skip
    clock_parts: bool = switch(
        True,
        "Constants of queries are searched for parts of the present time, which end their answers "
        "(docs/query_semantics_changes.md). The variable QUAESTOR_CLOCK_PARTS wins over the program.",
    )
    explicit: bool = switch(
        False,
        "Answers without a captured query are stored too, by their own header fields as in a shared cache (RFC 9111). "
        "The reverse proxy needs it.",
    )
    heuristic_fraction: float = number(
        0.0, 0, 1,
        "With `explicit`: lifetime of answers without one, as a share of the time since their Last-Modified, a day at "
        "most (RFC 9111, section 4.2.2; 0.1 is usual). 0: these answers are not stored.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self)
        if self.ttl_max_ms < self.ttl_min_ms:
            raise ConfigurationError(
                f"ttl_max_ms ({self.ttl_max_ms}) is below ttl_min_ms ({self.ttl_min_ms}): raise ttl_max_ms, or lower "
                "ttl_min_ms"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSettings:
    """Settings of the matching: the change stream, the grid's cells and pipelines, and the freshness that they prove."""

    enabled: bool = switch(
        True,
        "Off: no MongoDB is watched and no query is registered. With `explicit`, Quaestor is a plain HTTP cache.",
        name="grid",
    )
    elect_grid: bool = switch(
        True,
        "With `redis_url`, the processes elect one of them to run the matching while there is no grid (docs/grid.md). "
        "Off: without a grid nothing is cached.",
    )
    staleness_bound_ms: int = whole(
        2_000, "ms", 1, _YEAR_MS,
        "A query partition that has not proved itself fresher than this is not served from the cache. Subscribers of "
        "its results are notified that the results stand still.",
    )  # fmt: skip
    heartbeat_ms: int = whole(
        250, "ms", 1, _YEAR_MS,
        "Interval between two reports of ingest and of cells. At most half of `staleness_bound_ms`.",
    )  # fmt: skip
    activation_deadline_ms: int = whole(
        250, "ms", 1, _YEAR_MS, "The longest wait of a miss for its registrations; then its answer goes out uncached."
    )
    read_your_writes_ms: int = whole(
        50, "ms", 0, _YEAR_MS,
        "The longest wait of an answer to a request that wrote, until the cache serves nothing older than its writes. "
        "0: no wait (docs/read_your_writes.md).",
    )  # fmt: skip
    journal_flush_ms: int = whole(
        0, "ms", 0, 100,
        "Interval between two checks, while writers use `w: 1`, whether a write waits for mongod's journal, which is "
        "then flushed. 0: never; mongod flushes every 100 ms (docs/write_concern.md).",
    )  # fmt: skip
    recheck: str = choice(
        "auto", ("auto", "on", "off"),
        "The query of a widened result, or a join, runs again after a write that may have changed it; an equal result "
        "stays. 'auto': where the run costs less than the misses it saves (docs/exactness.md).",
    )  # fmt: skip
    recheck_ms: int = whole(
        250, "ms", 1, _YEAR_MS,
        "The longest wait for the verdict of a recheck; then the result is evicted. recheck='off' rechecks nothing.",
    )  # fmt: skip
    retention_ms: int = whole(60_000, "ms", 1, _YEAR_MS, "Time that after-images are kept for replay.")
    pipeline_max_entries: int = whole(
        2_000_000, "", 1, _MOST,
        "The most events of one pipeline. A fuller pipeline loses its oldest events; a reader that missed events takes "
        "everything for changed.",
    )  # fmt: skip
    pipeline_max_bytes: int = whole(
        512 * _MIB, "bytes", 1, _MOST_BYTES, "The largest size of one pipeline; see `pipeline_max_entries`."
    )
    node_memory_bytes: int = whole(
        2048 * _MIB, "bytes", 1, _MOST_BYTES,
        "Budget of one matching node for queries and registrations; the least useful ones give way. A stage has the "
        "same budget for the results of subscribed queries, and refuses more.",
    )  # fmt: skip
    pre_images: str = choice(
        "leave", ("leave", "enable"),
        "'enable' turns pre- and post-images on (collMod) for collections that answers depend on. 'leave' changes no "
        "collection (docs/doctor.md).",
    )  # fmt: skip
    max_contributors: int = whole(
        1_000, "", 0, 100_000,
        "The most records of one registration that are followed because they decide its result without being part of "
        "it. With more, or with 0, images of each write decide alone (docs/query_semantics_changes.md).",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self)
        if self.heartbeat_ms * 2 > self.staleness_bound_ms:
            raise ConfigurationError(
                f"heartbeat_ms ({self.heartbeat_ms}) must be at most half of staleness_bound_ms "
                f"({self.staleness_bound_ms})"
            )

    def __bool__(self) -> bool:
        return _truth("grid", self.enabled)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealtimeSettings:
    """Settings of subscribed queries and of followed answers (docs/live.md)."""

    subscription_lease_ms: int = whole(
        120_000, "ms", 1, _YEAR_MS,
        "Time that the grid maintains a subscribed query for a process that has stopped reporting.",
    )  # fmt: skip
    subscription_extend_ms: int = whole(
        30_000, "ms", 1, _YEAR_MS,
        "Interval between two reports of a process with subscriptions. At most a third of `subscription_lease_ms`.",
    )  # fmt: skip
    subscription_queue: int = whole(
        1_000, "", 1, _MOST,
        "The most events kept for a slow subscriber. With more, the subscriber receives the whole result anew.",
    )  # fmt: skip
    standing_records: int = whole(
        100_000, "", 1, _MOST, "The most records that one subscribed query may keep. Larger ones are refused."
    )
    poll_interval_ms: int = whole(
        1_000, "ms", 1, _YEAR_MS, "The shortest time between two reads of one subscribed query."
    )
    propagation_ms: int = whole(
        0, "ms", 0, _YEAR_MS,
        "The shortest time between two changes of one record in a subscribed result. The newest state is sent; additions, "
        "removals and moves are sent at once. 0: no limit (docs/subscriptions.md).",
    )  # fmt: skip
    live_followers: int = whole(
        10_000,
        "",
        0,
        _MOST,
        "The most streams and long polls of followed answers in one process. More are refused (503).",
    )
    live_followers_of_client: int = whole(
        1_000, "", 0, _MOST,
        "The most streams and long polls of one client address in one process. More are refused (429).",
    )  # fmt: skip
    live_heartbeat_ms: int = whole(
        15_000, "ms", 10, _YEAR_MS, "Interval between two signs of life of a stream to which nothing is sent."
    )
    live_journal_flush_ms: int = whole(
        0, "ms", 0, 100,
        "As journal_flush_ms, but only while clients of this process follow live answers or queries, where the process runs the "
        "matching. 0: never (docs/write_concern.md).",
    )  # fmt: skip
    live_interval_ms: int = whole(
        20, "ms", 0, _YEAR_MS, "The shortest time between two runs of a handler for one followed answer."
    )
    live_reconnect_ms: int = whole(
        5_000, "ms", 500, _YEAR_MS,
        "The longest time before a client connects to a stream again. Each client receives another time, at random.",
    )  # fmt: skip
    live_send_timeout_ms: int = whole(
        30_000, "ms", 10, _YEAR_MS, "A client that reads nothing for so long loses its stream."
    )
    live_wait_ms: int = whole(60_000, "ms", 1, _YEAR_MS, "The longest wait of a long poll (`Prefer: wait=`).")

    def __post_init__(self) -> None:
        check(self)
        if self.subscription_extend_ms * 3 > self.subscription_lease_ms:
            raise ConfigurationError(
                f"subscription_extend_ms ({self.subscription_extend_ms}) must be at most a third of "
                f"subscription_lease_ms ({self.subscription_lease_ms})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationSettings:
    """Settings of verification: stored answers are made again in the background and compared (docs/verification.md)."""

    enabled: bool = switch(
        True,
        "Stored answers are made again in the background and compared, to find dependencies that nobody can see.",
        name="verification",
    )
    probation_answers: int = whole(
        3, "", 0, 1_000,
        "Answers of each route that are verified before its entries live for longer than `probation_ttl_ms`. 0: none.",
    )  # fmt: skip
    probation_ttl_ms: int = whole(5_000, "ms", 1, _YEAR_MS, "Lifetime of the entries of a route on probation.")
    verify_share: float = number(0.001, 0, 1, "Share of the hits after probation that are followed by a verification.")
    verify_per_second: float = number(1.0, 0, 1_000, "The most verifications in a process.", unit="a second")
    quarantine_ms: int = whole(
        3_600_000, "ms", 1, _YEAR_MS,
        "Time that a route is not cached after an answer of it has diverged, or its handler has written.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self)

    def __bool__(self) -> bool:
        return _truth("verification", self.enabled)


@dataclass(frozen=True, slots=True, kw_only=True)
class CdnSettings:
    """Settings of purges in CDNs (docs/cdn.md)."""

    repurge_after_ms: int = whole(
        1_000, "ms", 0, _YEAR_MS,
        "Time after which a purge is repeated, for copies that were on their way to the CDN at the first purge.",
    )  # fmt: skip
    cdn_addresses: tuple[str, ...] = texts(
        "Public addresses of CDNs, each NAME=URL ('varnish=https://shop.example'): through them the effect of purges is "
        "checked, at the start and every `cdn_canary_ms`."
    )
    cdn_canary_ms: int = whole(300_000, "ms", 0, _YEAR_MS, "Interval between two checks of purges. 0: never.")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilitySettings:
    """Settings of what operators see, and of the process itself (docs/observability.md)."""

    debug_header: bool = switch(False, "Answers carry X-Quaestor-Explain.")
    tracing: bool = switch(False, "OpenTelemetry spans of misses and of invalidations; needs `quaestor[otel]`.")
    trace_file: str = text(
        "",
        "File that records requests and invalidations, hashed, for `quaestor ttl` (docs/trace_format.md). `{pid}` in "
        "it stands for the process id. Empty: nothing is recorded.",
    )
    trace_share: float = number(1.0, 0, 1, "Share of the results that are recorded.", excluded=(0,))
    trace_max_bytes: int = whole(64 * _MIB, "bytes", 1, _MOST_BYTES, "Size of the trace at which recording ends.")
    freeze_at_start: bool = switch(
        True,
        "Objects loaded before the start are kept from Python's garbage collector (`gc.freeze`), which then collects "
        "young objects after every 10,000 new ones. Not where the app has frozen objects itself.",
    )
    switch_interval_ms: float = number(
        1.0, 0, 5,
        "Python's switch interval (`sys.setswitchinterval`) in an app process: a write's way to the cache waits so long at "
        "each of its steps while handlers compute. Not where the app has set another one than Python's. 0: left as it is.",
        unit="ms",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self)


def _truth(group: str, enabled: bool) -> bool:
    """Return `enabled` with a warning: `settings.grid` and `settings.verification` were switches before they were groups."""
    warn(f"settings.{group} is a group of settings: write settings.{group}.enabled", DeprecationWarning, stacklevel=3)
    return enabled
