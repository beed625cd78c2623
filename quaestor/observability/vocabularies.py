"""Vocabularies of the metrics: the allowed values of each label. No URLs, no keys, nothing that a user has typed.

A value outside a label's vocabulary counts as `other`. Of names from configuration or code, only the first 64 have series of
their own. The number of series is therefore always bounded.
"""

from __future__ import annotations

from quaestor.model import MatchType, Uncacheable

MOST_NAMES = 64
OTHER = "other"

Vocabulary = frozenset[str] | None
"""None: names from configuration or code, at most MOST_NAMES."""

OUTCOMES = frozenset({"hit", "miss", "coalesced", "bypass"})
LAYERS = frozenset({"memory", "redis", "assembled", "stale"})
LEFT = frozenset({"invalidated", "withdrawn", "expired", "demand", "outdated", "cleared"})
"""Reasons of removals from this process's memory. demand: others are in more demand.

outdated: by name, by an unsafe request.
"""
MISSES = LEFT | {"absent", "lagging", "request", "refresh"}
"""lagging: the entry is there, but its cells are not fresh now. request: the client or the origin wants it made anew. refresh: no
request waits for it."""
PRECISION = frozenset({"exact", "widened", "unknown"})
ANSWERS = frozenset({"same", "changed"})
WAITS = frozenset({"process", "workers"})
STALE = frozenset({"accepted", "revalidating", "error"})
OWN_WRITES = frozenset({"seen", "late", "unknown"})
"""late: not within the bound. unknown: the write has no version, or nothing is served from cache anyway."""
FLUSHES = frozenset({"effective", "vain"})
"""Effects of mongod's journal flushes. effective: afterwards a majority had the waiting write.

vain: the write did not wait for the journal."""
PURGE_ANSWERS = frozenset({"delivered", "accepted", "rejected", "throttled", "failed"})
"""Answers of a CDN to a purge request; failed: none, or a refusal of all purges."""
QUEUED = frozenset({"waiting", "taken", "dead"})
CANARY = frozenset({"ok", "warn", "block"})
CDN_STATES = frozenset({"ok", "throttled", "dark", "over-budget"})
"""over-budget: the month's budget for its purges is spent."""
CANARY_FIGURES = frozenset({"hits", "invalidations", "stale"})
CANARY_OF = frozenset({"canary", "rest", "low", "high"})
"""low, high: the ends of the band in which the canary must stay."""
CANARY_ENDS = frozenset({"promoted", "rolled-back"})
LEVELS = frozenset({"memory", "redis"})
FALSE_POSITIVES = frozenset({"estimated", "measured"})
BUDGET = frozenset({"used", "budget"})
FINDINGS = frozenset({"same", "excused", "diverged", "failed"})
"""Findings of a verification of a stored answer."""
SLOW = frozenset({"rate", "time"})
"""Reasons of a slow request body. rate: behind the slowest pace, silence included. time: its total time was too long."""
REFUSED = frozenset({"too-large", "demand"})
PARTS = frozenset(
    {
        "configuration", "engine", "mongodb", "event-layer", "matching", "store", "sketch", "grid", "cdn", "origin", "client",
        "admin", "effects", "handler", "read-path", "records", "routes", "statistics", "observer", "delivery", "continuous",
        "tables", "channels", "feeds",
    }
)  # fmt: skip
"""Parts that failure() names; docs/failure_modes.md describes each."""
SINKS = frozenset({"webhook", "mail", "file", "function", "broker"})
DELIVERIES = frozenset({"delivered", "failed", "dead"})
"""Outcomes of deliveries. dead: the last attempt failed too, and the batch became a dead letter."""
DELIVERY_FAILURES = frozenset({
    "timeout", "unreachable", "status", "redirect", "forbidden-address", "mail-refused", "disk", "function", "sink",
})  # fmt: skip
"""Reasons of failed deliveries. status: the receiver answered with an error. sink: any failure without a reason of its own."""
RUN_SOURCES = frozenset({"tables", "results"})
"""Sources of a run. results: earlier results of the same query."""
FEED_RECORDS = frozenset({"accepted", "rejected"})
RUNS = frozenset({"published", "outrun", "failed"})
"""Outcomes of runs. outrun: another process has published the same interval."""
CHANNEL_STAGES = frozenset({"load", "subscriptions", "execute", "encode", "publish"})
"""Stages of a channel's run."""
QUERY_STATES = frozenset({"active", "waiting", "paused", "quarantined"})
LIVE_BEGINNINGS = frozenset({"new", "resumed", "refreshed"})
"""Beginnings of a subscription over a socket. refreshed: the events behind its position were no longer kept."""
LIVE_ENDS = frozenset({
    "unsubscribed", "left", "slow", "silent", "stopping", "broken-rule", "expired", "rights", "too-large", "unfollowable",
    "unavailable",
})  # fmt: skip
"""Reasons for which a subscription over a socket ends."""
LIVE_HTTP_ANSWERS = frozenset({"snapshot", "changes", "unchanged", "gone", "refused", "stream"})
"""Contents of answers about live queries over HTTP. gone: 409, the client's changes are not kept."""
LIVE_REFUSALS = frozenset({"origin", "connections", "address"})
"""Reasons of refused WebSocket handshakes."""
MATCH_TYPES = frozenset(match.value for match in MatchType)
REASONS = frozenset(reason.value for reason in Uncacheable) | {
    # of the answer
    "status", "set-cookie", "no-store", "private", "no-cache", "partial", "vary", "unspecified", "trailers", "stream",
    "too-large", "length", "unfinished", "extension", "rerouted", "client-address", "scope-entry", "condition",
    "missing-read", "hidden-input", "unnoticed",
    # of the request
    "request", "request-body", "precondition", "override", "host", "authorization", "cookie", "credentials", "unkeyed",
    # of the route
    "bypass", "private-route", "scope", "diverged",
    # of the moment
    "refused", "lagging", "failed", "died", "lifetime", "not-serving", "unsettled", "doorkeeper",
}  # fmt: skip
"""Reasons why an answer was not cached, or a request bypassed the cache."""

FOLLOWER_EVENTS = frozenset({"whole", "patch", "base64", "status"})
"""Forms in which a stream receives an answer."""
FOLLOWER_REFUSALS = frozenset({"client", "process", "stopping"})
"""Limits by which a stream or a long poll is refused."""
FOLLOWER_ENDS = REASONS | {
    "left", "answered", "slow", "stopping", "expired", "unauthorized", "unfollowable",
}  # fmt: skip
"""Ends of a stream or a long poll: its own reasons, or the reason why its answers are not stored."""

_WIDENED = (
    ("collation ", "collation"), ("pipeline: widened to its leading", "leading-match"),
    ("pipeline without a leading", "pipeline"),
    ("joined", "join"), ("shows what is not evaluated", "projection"),
    ("read by a pipeline of another", "lookup"), ("let:", "variables"), ("$natural", "sort"), ("sort by", "sort"),
    ("a regular expression", "regular-expression"), ("$text", "text"), ("a text index", "text"), ("$near", "geo"),
    ("a polygon", "geo"), ("a geographic", "geo"), ("a filter too deeply", "depth"), ("an expression that is nested", "depth"),
)  # fmt: skip
WIDENED = frozenset(name for _, name in _WIDENED) | {"json-schema", "operator"}

RECHECKS = frozenset({"kept", "changed", "given-up", "not-worth-it"})
"""Ends of a recheck: the same result, another one, no verdict in time; or it was not begun."""


def widening(reason: str) -> str:
    """Return the kind of a plan's reason, which may quote the query."""
    if "$jsonSchema" in reason:
        return "json-schema"
    return next((name for start, name in _WIDENED if reason.startswith(start)), "operator")
