"""Settings: every knob, with its unit and bounds. Read once, when a Quaestor is made; never at import."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from quaestor.argument_names import unknown_name
from quaestor.errors import ConfigurationError

_LONGEST_TENANT = 64
ENVIRONMENT_PREFIX = "QUAESTOR_"
_SWITCHES = frozenset({"enabled", "clock_parts"})
"""Settings whose variable wins over what the program says."""
_OF_OTHERS = frozenset({"admin_token", "admin_url"})
"""Variables with this prefix that are no settings: see `quaestor.admin`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one Quaestor. Defaults suit one process on one MongoDB. Raises ConfigurationError for what cannot be.

    mongo_url: where change streams are read. None: taken from the client that capture is attached to.
    redis_url: event layer, shared store and sketch: redis://host:port, or redis+cluster://host:port,host:port for a
        Redis Cluster (see docs/cluster.md). None: embedded, everything in this process.
    deployment: name that separates deployments sharing one Redis.
    tenant: the app, on a grid that several share: what it caches, and what it is told, is its own. Empty: named like
        the deployment.
    staleness_bound_ms: a query partition of the grid that has not proved itself fresher than this is not served from cache, and
        subscribers of its results are told that they stand still.
    heartbeat_ms: how often ingest ticks and cells report; well below the staleness bound.
    activation_deadline_ms: how long a miss waits for its registrations before its response goes out uncached.
    read_your_writes_ms: how long the answer to a request that wrote is held back at most, until nothing older than its
        writes is served any more; 0: it is not held back (see docs/read_your_writes.md).
    journal_flush_ms: how often the primary is asked, while there are writers with `w: 1`, whether a write waits for the journal,
        which is then flushed: its event comes within milliseconds instead of up to 100 ms; 0: never, mongod flushes when it
        does (see docs/write_concern.md).
    recheck: whether the query of a widened result, or a join, is run again when a write may have changed it, and it is evicted
        only if the result is another one: "auto", where that is expected to cost less than the misses it saves; "on"; "off". See
        docs/exactness.md.
    recheck_ms: how long the verdict may take; after that it is evicted. Nothing that waits for one is served.
    retention_ms: how long after-images are kept for replay.
    pipeline_max_entries, pipeline_max_bytes: of one pipeline; what is too large loses its oldest entries, and a
        reader that has missed some takes everything for changed. What is registered in the oldest part of a query
        pipeline is uncached.
    node_memory_bytes: budget of one matching node for queries and registrations, by its own reckoning; what saves the
        fewest reads gives way. A stage has the same for the results of subscribed queries; what is more is refused.
    pre_images: "enable" turns pre- and post-images on (collMod) for collections that answers depend on and that record none,
        where the user may; "leave" leaves collections as they are. See docs/doctor.md.
    ttl_min_ms: shortest estimated lifetime of copies outside, in CDNs and browsers.
    ttl_max_ms: longest one, and how long an entry of our own is used at most: so long it is guarded.
    ttl_quantile: probability that a result has changed before its first estimated lifetime ends (0..1, exclusive).
    client_ttl: lifetime of copies in clients. "sketch": browsers are told max-age=0, so they revalidate with their ETag, and
        clients that consult the Cache Sketch are told a lifetime in a field of its own (docs/sketch_clients.md); "none":
        max-age=0 and nothing else; "estimated": browsers keep the response, so all of them must consult the Cache Sketch.
    sketch_delta_s: how old a Cache Sketch may be that clients rely on, in s (1..3600): the bound of their staleness.
    sketch_off: clients are told to leave everything to the network; without a restart, `quaestor sketch --off` does it (see
        docs/sketch_clients.md).
    trust_new_sketch: where there is no sketch yet, there never was one: nobody keeps a copy. Otherwise a new one names everything
        until copies from before it are dead (ttl_max_ms), because it may have been lost.
    sketch_entries, sketch_false_positives: how many outdated resources the sketch is made for, and the share of others (0..1,
        exclusive) that it may then name as well. With more of them, lifetimes of copies are shortened.
    sketch_bytes: its size at most (100..32000). The same in all processes of a deployment.
    sketch_partitions: collections with a filter of their own: "shop.items", "group=shop.items" for one that several share, "*"
        for each further one. In the environment separated by commas. The same in all processes of a deployment.
    clock_window_ms: a time in a query, finer than a minute, that is closer to the request than this counts as "now".
    clock_parts: whether constants of queries are searched for parts of the present time, which end their answers (see
        docs/query_semantics_changes.md). The environment variable QUAESTOR_CLOCK_PARTS wins, also one set before a later start().
    memory_bytes: budget of the in-process store.
    shared_bytes: budget of the entries in Redis, of all processes together, beside the pipelines (see docs/cluster.md).
    max_body_bytes: larger bodies are streamed through, never stored.
    doorkeeper_share: where fewer than this share of a route's entries are used even once (0..1), an answer is stored at the
        second request for it; 0: always at the first (see docs/admission.md).
    early_refresh: what is asked for often is made anew in the background so many times its own cost (on average)
        before its lifetime ends; 0: never.
    verification: whether stored answers are made again in the background and compared, to find what depends on something that
        nobody can see (see docs/verification.md).
    probation_answers: of each route, that are verified before its entries live for longer than probation_ttl_ms; 0: none.
    verify_share: of the hits afterwards that are followed by a verification (0..1), at most verify_per_second of them in a
        process.
    quarantine_ms: how long a route is not cached after an answer of it has diverged, or its handler has written.
    compress_above_bytes: larger entries lie in Redis compressed.
    compression_level: Zstandard's, 1 (fast) to 19 (small); 0: nothing is compressed.
    repurge_after_ms: a copy handed out less than this before its invalidation may still be on its way to the CDN; it
        is purged a second time after this.
    cdn_addresses: public addresses of CDNs, each NAME=URL ("varnish=https://shop.example"): through them it is seen that purges
        have an effect, at the start and every cdn_canary_ms; 0: never. In the environment separated by commas. See docs/cdn.md.
    control_namespace: database and collection where invalidations by tag and by URL are written, and removed at once.
    max_contributors: records that a registration may keep the ids of because they decide its result without being shown (counted,
        skipped, holders of distinct values; docs/query_semantics_changes.md); read in the background, once; with more, or 0, it
        is judged by the images of each write alone.
    subscription_lease_ms: how long the grid goes on maintaining a subscribed query for a process it does not hear
        from.
    subscription_extend_ms: how often a process says that it is still there; at most a third of the lease.
    subscription_queue: events kept for a subscriber that is slow to take them; with more he gets the whole result
        anew.
    standing_records: records that one subscribed query may have to keep; larger ones are refused.
    poll_interval_ms: a subscribed query is read again at most once in this time.
    ignored_fields: names of request fields that do not decide about answers although the application asks for them, for
        loggers and the like; "client-address": nor does the client's address, "scope.name", "state.name": nor does that
        entry. In the environment separated by commas. See docs/privacy.md.
    sort_query: the order of query parameters does not matter, except among those of one name: handlers are shown them by
        name, and `?a=1&b=2` shares an entry with `?b=2&a=1`. A route's own `sort_query` goes first.
    freeze_at_start: what the process has loaded when the app has started is kept from Python's garbage collector (`gc.freeze`),
        which then collects young objects after every 10,000 new ones; unless the app has frozen anything itself. See
        docs/observability.md.
    debug_header: send X-Quaestor-Explain (see docs/observability.md).
    tracing: OpenTelemetry spans of misses and of invalidations; needs `quaestor[otel]`.
    explicit: answers that depend on no captured query are stored as well, for as long as their own header fields say:
        as a shared cache does (RFC 9111). For the reverse proxy, which does not see what its origin reads.
    heuristic_fraction: with `explicit`, how long an answer that does not say so is taken for fresh: a share of the time since
        its Last-Modified (RFC 9111, section 4.2.2; 0.1 is usual), a day at most; 0: such answers are not stored.
    partial_answers: parts of answers (206) are stored too, combined and completed, within `max_body_bytes` an entry; see
        docs/http.md.
    trace_file: where requests and invalidations are recorded, hashed, for `quaestor ttl` (see docs/trace_format.md); `{pid}` in
        it is the process id; empty: nothing is recorded.
    trace_share: of the results that are recorded (0..1, above 0).
    trace_max_bytes: recording ends when the file is so large.
    elect_grid: with `redis_url`, the processes elect one among them to run the matching while there is no grid (docs/grid.md).
        False: without a grid nothing is cached.
    enabled: False: Quaestor is turned off. The middleware hands every request to the app, and nothing is started. The environment
        variable QUAESTOR_ENABLED wins over what the program says.
    grid: False: no MongoDB is watched and nothing can be registered; with `explicit`, a plain HTTP cache.
    """

    mongo_url: str | None = None
    redis_url: str | None = None
    deployment: str = "default"
    tenant: str = ""
    staleness_bound_ms: int = 2_000
    heartbeat_ms: int = 250
    activation_deadline_ms: int = 250
    read_your_writes_ms: int = 50
    journal_flush_ms: int = 0
    recheck: str = "auto"
    recheck_ms: int = 250
    retention_ms: int = 60_000
    pipeline_max_entries: int = 2_000_000
    pipeline_max_bytes: int = 512 * 1024 * 1024
    node_memory_bytes: int = 2 * 1024 * 1024 * 1024
    pre_images: str = "leave"
    ttl_min_ms: int = 1_000
    ttl_max_ms: int = 3_600_000
    ttl_quantile: float = 0.5
    client_ttl: str = "sketch"
    sketch_delta_s: int = 10
    sketch_off: bool = False
    trust_new_sketch: bool = False
    sketch_entries: int = 20_000
    sketch_false_positives: float = 0.065
    sketch_bytes: int = 14_600
    sketch_partitions: tuple[str, ...] = ()
    clock_window_ms: int = 300_000
    clock_parts: bool = True
    memory_bytes: int = 64 * 1024 * 1024
    shared_bytes: int = 512 * 1024 * 1024
    max_body_bytes: int = 2 * 1024 * 1024
    doorkeeper_share: float = 0.1
    early_refresh: float = 1.0
    verification: bool = True
    probation_answers: int = 3
    probation_ttl_ms: int = 5_000
    verify_share: float = 0.001
    verify_per_second: float = 1.0
    quarantine_ms: int = 3_600_000
    compress_above_bytes: int = 4096
    compression_level: int = 3
    repurge_after_ms: int = 1_000
    cdn_addresses: tuple[str, ...] = ()
    cdn_canary_ms: int = 300_000
    control_namespace: str = "quaestor.control"
    max_contributors: int = 1_000
    subscription_lease_ms: int = 120_000
    subscription_extend_ms: int = 30_000
    subscription_queue: int = 1_000
    standing_records: int = 100_000
    poll_interval_ms: int = 1_000
    ignored_fields: tuple[str, ...] = ()
    sort_query: bool = False
    freeze_at_start: bool = True
    debug_header: bool = False
    tracing: bool = False
    explicit: bool = False
    heuristic_fraction: float = 0.0
    partial_answers: bool = False
    trace_file: str = ""
    trace_share: float = 1.0
    trace_max_bytes: int = 64 * 1024 * 1024
    elect_grid: bool = True
    enabled: bool = True
    grid: bool = True

    def __post_init__(self) -> None:
        for name in (
            "staleness_bound_ms",
            "heartbeat_ms",
            "activation_deadline_ms",
            "retention_ms",
            "pipeline_max_entries",
            "pipeline_max_bytes",
            "ttl_min_ms",
            "node_memory_bytes",
            "shared_bytes",
            "probation_ttl_ms",
            "quarantine_ms",
            "trace_max_bytes",
        ):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be positive, not {getattr(self, name)}")
        if self.ttl_max_ms < self.ttl_min_ms:
            raise ConfigurationError(f"ttl_max_ms ({self.ttl_max_ms}) is below ttl_min_ms ({self.ttl_min_ms})")
        if self.read_your_writes_ms < 0:
            raise ConfigurationError(
                f"read_your_writes_ms must be 0 (off) or a time in ms, not {self.read_your_writes_ms}"
            )
        if not 0 <= self.journal_flush_ms <= 100:
            raise ConfigurationError(
                f"journal_flush_ms must lie in 0..100 (mongod flushes every 100 ms anyway; 0: off), not {self.journal_flush_ms}"
            )
        if not 0 <= self.doorkeeper_share <= 1:
            raise ConfigurationError(f"doorkeeper_share must lie in 0..1, not {self.doorkeeper_share}")
        if not 0 <= self.max_contributors <= 100_000:
            raise ConfigurationError(
                f"max_contributors must lie in 0 (none are kept) to 100000, not {self.max_contributors}"
            )
        if not 0 <= self.early_refresh <= 1_000:
            raise ConfigurationError(f"early_refresh must lie in 0..1000, not {self.early_refresh}")
        if not 0 <= self.heuristic_fraction <= 1:
            raise ConfigurationError(f"heuristic_fraction must lie in 0..1, not {self.heuristic_fraction}")
        if not 0 <= self.probation_answers <= 1_000:
            raise ConfigurationError(f"probation_answers must lie in 0..1000, not {self.probation_answers}")
        if not 0 <= self.verify_share <= 1:
            raise ConfigurationError(f"verify_share must lie in 0..1, not {self.verify_share}")
        if not 0 < self.trace_share <= 1:
            raise ConfigurationError(f"trace_share must lie in 0..1, above 0, not {self.trace_share}")
        if not 0 <= self.verify_per_second <= 1_000:
            raise ConfigurationError(f"verify_per_second must lie in 0..1000, not {self.verify_per_second}")
        if not 0 <= self.compression_level <= 19:
            raise ConfigurationError(f"compression_level must lie in 0..19, not {self.compression_level}")
        if not 0 < self.ttl_quantile < 1:
            raise ConfigurationError(f"ttl_quantile must lie between 0 and 1, not {self.ttl_quantile}")
        if self.heartbeat_ms * 2 > self.staleness_bound_ms:
            raise ConfigurationError(
                f"heartbeat_ms ({self.heartbeat_ms}) must be at most half of staleness_bound_ms ({self.staleness_bound_ms})"
            )
        if isinstance(self.cdn_addresses, str):
            raise ConfigurationError(f"cdn_addresses={self.cdn_addresses!r} is one text: give a tuple of NAME=URL")
        if self.cdn_canary_ms < 0:
            raise ConfigurationError(f"cdn_canary_ms must be 0 (never) or a time in ms, not {self.cdn_canary_ms}")
        if not all(self.control_namespace.partition(".")):
            raise ConfigurationError(f"control_namespace {self.control_namespace!r} must be 'database.collection'")
        for name in ("subscription_extend_ms", "subscription_queue", "standing_records", "poll_interval_ms"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be positive, not {getattr(self, name)}")
        if self.subscription_extend_ms * 3 > self.subscription_lease_ms:
            raise ConfigurationError(
                f"subscription_extend_ms ({self.subscription_extend_ms}) must be at most a third of "
                f"subscription_lease_ms ({self.subscription_lease_ms})"
            )
        if isinstance(self.ignored_fields, str) or not all(map(_is_field, self.ignored_fields)):
            raise ConfigurationError(
                f"ignored_fields {self.ignored_fields!r} must be names of request fields, such as ('user-agent',), or "
                "'client-address', 'scope.name', 'state.name'"
            )
        if self.recheck not in ("auto", "on", "off"):
            raise ConfigurationError(f"recheck is 'auto', 'on' or 'off', not {self.recheck!r}")
        if self.recheck_ms <= 0:
            raise ConfigurationError(
                f"recheck_ms must be positive, not {self.recheck_ms}; recheck='off' rechecks nothing"
            )
        if self.pre_images not in ("leave", "enable"):
            raise ConfigurationError(f"pre_images is 'leave' or 'enable', not {self.pre_images!r}")
        if self.client_ttl not in ("sketch", "none", "estimated"):
            raise ConfigurationError(f"client_ttl is 'sketch', 'none' or 'estimated', not {self.client_ttl!r}")
        if not 1 <= self.sketch_delta_s <= 3_600:
            raise ConfigurationError(f"sketch_delta_s must lie in 1..3600, not {self.sketch_delta_s}")
        if not 1 <= self.sketch_entries <= 10_000_000:
            raise ConfigurationError(f"sketch_entries must lie in 1..10000000, not {self.sketch_entries}")
        if not 0 < self.sketch_false_positives < 1:
            raise ConfigurationError(
                f"sketch_false_positives must lie between 0 and 1, not {self.sketch_false_positives}"
            )
        if not 100 <= self.sketch_bytes <= 32_000:
            raise ConfigurationError(f"sketch_bytes must lie in 100..32000, not {self.sketch_bytes}")
        if isinstance(self.sketch_partitions, str):
            raise ConfigurationError(f"sketch_partitions {self.sketch_partitions!r} must be a tuple of names")
        if not self.deployment or any(c in self.deployment for c in "{}:@ \t\n"):
            raise ConfigurationError(
                f"deployment {self.deployment!r} must be non-empty without braces, colons, @ or spaces"
            )
        if self.tenant and not is_tenant(self.tenant):
            raise ConfigurationError(
                f"tenant {self.tenant[:100]!r} must have at most {_LONGEST_TENANT} characters, and no braces, colons, ~, @ or "
                "spaces"
            )

    @property
    def owner(self) -> str:
        """Name of the tenant, the deployment's if there is but one."""
        return self.tenant or self.deployment

    @property
    def scope(self) -> str:
        """Scope of an app's entries, index, sketch and labels, part of their names: no two tenants see each other's."""
        return self.deployment if self.owner == self.deployment else f"{self.deployment}@{self.tenant}"

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
        """Settings from the environment: QUAESTOR_<NAME> for every field, MONGO_URL and REDIS_URL besides; overrides win.

        Raises ConfigurationError for an unknown QUAESTOR_ variable, an unknown override, or a value of the wrong type.
        """
        environment = os.environ if environment is None else environment
        kinds = {field.name: field.type for field in fields(cls)}
        values: dict[str, Any] = {}
        for plain in ("MONGO_URL", "REDIS_URL"):
            if plain in environment:
                values[plain.lower()] = environment[plain]
        for variable, text in environment.items():
            if not variable.startswith(ENVIRONMENT_PREFIX):
                continue
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            if name in _OF_OTHERS:
                continue
            if name not in kinds:
                raise ConfigurationError(f"unknown setting {variable}; known: {', '.join(sorted(kinds))}")
            values[name] = _parse(variable, text, str(kinds[name]))
        for name in overrides:
            if name not in kinds:
                raise ConfigurationError(unknown_name("Quaestor()", name, kinds))
        return cls(**(values | overrides))


def switched(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Return the settings with QUAESTOR_ENABLED and QUAESTOR_CLOCK_PARTS applied. Raises ConfigurationError for a value that is
    neither 0 nor 1."""
    variables = {name: f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in sorted(_SWITCHES)}
    values = {
        name: _parse(variable, environment[variable], "bool")
        for name, variable in variables.items()
        if variable in environment
    }
    return replace(settings, **values) if values else settings


def settings_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of an environment that `Settings.from_env` reads and `Quaestor()` does not, sorted; without the addresses."""
    variables = (
        f"{ENVIRONMENT_PREFIX}{field.name.upper()}" for field in fields(Settings) if field.name not in _SWITCHES
    )
    return tuple(sorted(variable for variable in variables if variable in environment))


def is_tenant(name: str) -> bool:
    """Whether a tenant may be called that: it becomes part of ids and of the names of pipelines."""
    return 0 < len(name) <= _LONGEST_TENANT and not any(c in name for c in "{}:~@ \t\n")


def _is_field(name: object) -> bool:
    return (
        isinstance(name, str) and re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}", name) is not None and name != "*"
    )


def _parse(variable: str, text: str, kind: str) -> Any:
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
        if kind == "bool":
            return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
        if kind.startswith("tuple"):
            return tuple(name.strip() for name in text.split(",") if name.strip())
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"{variable}={text!r} is not a valid {kind}") from error
    return text
