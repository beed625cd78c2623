"""Vocabularies of the metrics: the values that each label may have. No URLs, no keys, nothing that a user has typed.

What is not in a label's vocabulary is counted as `other`; of names that come from configuration or code, the first 64 are told
apart. So the number of series is bounded whatever is counted.
"""

from __future__ import annotations

from quaestor.model import MatchType, Uncacheable

MOST_NAMES = 64
OTHER = "other"

Vocabulary = frozenset[str] | None
"""None: names that configuration or code gives, at most MOST_NAMES."""

OUTCOMES = frozenset({"hit", "miss", "coalesced", "bypass"})
LAYERS = frozenset({"memory", "redis", "assembled", "stale"})
LEFT = frozenset({"invalidated", "withdrawn", "expired", "demand", "outdated", "cleared"})
"""Why an entry left this process's memory. demand: others are asked for more. outdated: by name, by an unsafe request."""
MISSES = LEFT | {"absent", "lagging", "request", "refresh"}
"""lagging: it is there, but what guards it is not fresh now. request: the client or the origin wants it made anew. refresh:
nobody waits for it."""
PRECISION = frozenset({"exact", "widened", "unknown"})
ANSWERS = frozenset({"same", "changed"})
WAITS = frozenset({"process", "workers"})
STALE = frozenset({"accepted", "revalidating", "error"})
OWN_WRITES = frozenset({"seen", "late", "unknown"})
"""late: not within the bound. unknown: nobody has dated the write, or nothing is served from cache anyway."""
FLUSHES = frozenset({"effective", "vain"})
"""Of mongod's journal; effective: afterwards a majority had the write that waited.

vain: it was not the journal that it waited for."""
PURGE_ANSWERS = frozenset({"delivered", "accepted", "rejected", "throttled", "failed"})
"""What a CDN said to a request for a purge; failed: nothing, or a refusal of all purges."""
QUEUED = frozenset({"waiting", "taken", "dead"})
CANARY = frozenset({"ok", "warn", "block"})
CDN_STATES = frozenset({"ok", "throttled", "dark", "over-budget"})
"""over-budget: what its purges of a month may cost is spent."""
CANARY_FIGURES = frozenset({"hits", "invalidations", "stale"})
CANARY_OF = frozenset({"canary", "rest", "low", "high"})
"""low, high: the band that the canary is judged by."""
CANARY_ENDS = frozenset({"promoted", "rolled-back"})
LEVELS = frozenset({"memory", "redis"})
FALSE_POSITIVES = frozenset({"estimated", "measured"})
BUDGET = frozenset({"used", "budget"})
FINDINGS = frozenset({"same", "excused", "diverged", "failed"})
"""What the verification of a stored answer found."""
SLOW = frozenset({"rate", "time"})
"""Why a request's body came too slowly: behind the slowest pace, silence included; all of it took too long."""
REFUSED = frozenset({"too-large", "demand"})
PARTS = frozenset(
    {
        "configuration", "engine", "mongodb", "event-layer", "matching", "store", "sketch", "grid", "cdn", "origin", "client",
        "admin", "effects", "handler", "read-path", "records", "routes", "statistics", "observer",
    }
)  # fmt: skip
"""Parts that failure() names; docs/failure_modes.md describes each."""
LIVE_BEGINNINGS = frozenset({"new", "resumed", "refreshed"})
"""How a subscription over a socket began. refreshed: the events behind its position were not kept any more."""
LIVE_REFUSALS = frozenset({"origin", "connections", "address", "unavailable"})
"""Reasons of refused WebSocket handshakes."""
MATCH_TYPES = frozenset(match.value for match in MatchType)
REASONS = frozenset(reason.value for reason in Uncacheable) | {
    # of the answer
    "status", "set-cookie", "no-store", "private", "no-cache", "partial", "vary", "unspecified", "trailers", "stream",
    "too-large", "length", "unfinished", "extension", "rerouted", "client-address", "scope-entry", "condition",
    "missing-read", "unnoticed",
    # of the request
    "request", "request-body", "precondition", "override", "host", "authorization", "cookie", "credentials", "unkeyed",
    # of the route
    "bypass", "private-route", "scope", "diverged",
    # of the moment
    "refused", "lagging", "failed", "died", "lifetime", "not-serving", "unsettled", "doorkeeper",
}  # fmt: skip
"""Why an answer was not cached, or a request was passed by."""

FOLLOWER_EVENTS = frozenset({"whole", "patch", "base64", "status"})
"""The form in which a stream was sent an answer."""
FOLLOWER_REFUSALS = frozenset({"client", "process", "stopping"})
"""The limit that a stream or a long poll was refused by."""
FOLLOWER_ENDS = REASONS | {
    "left", "answered", "slow", "stopping", "expired", "unauthorized", "unfollowable",
}  # fmt: skip
"""Ends of a stream or a long poll: a reason of its own, or the reason by which its answers are not stored."""

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
    """The kind of a plan's reason, which may quote the query."""
    if "$jsonSchema" in reason:
        return "json-schema"
    return next((name for start, name in _WIDENED if reason.startswith(start)), "operator")
