"""The vocabulary of metrics: which values a label may have. No URLs, no keys, nothing that a user has typed.

What is not in a label's vocabulary is counted as `other`; of names that come from configuration or code, the first 64 are told
apart. So the number of series is bounded whatever is counted.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from prometheus_client import Counter, Gauge, Histogram, Metric

from quaestor.model import MatchType, Uncacheable

MOST_NAMES = 64
_MOST_WAITING = 1_000
OTHER = "other"
_NAME = re.compile(r"[a-z0-9_-]{1,64}")

Vocabulary = frozenset[str] | None
"""None: names that configuration or code gives, at most MOST_NAMES."""

OUTCOMES = frozenset({"hit", "miss", "coalesced", "bypass"})
LAYERS = frozenset({"memory", "redis", "assembled", "stale"})
LEFT = frozenset({"invalidated", "withdrawn", "expired", "demand", "outdated", "cleared"})
"""Why an entry left this process's memory. demand: others are asked for more. outdated: by name, by an unsafe request."""
MISSES = LEFT | {"absent", "lagging", "request", "refresh"}
"""lagging: it is there, but nobody vouches for it now. request: the client or the origin wants it made anew. refresh: nobody
waits for it."""
PRECISION = frozenset({"exact", "widened", "unknown"})
ANSWERS = frozenset({"same", "changed"})
WAITS = frozenset({"process", "workers"})
STALE = frozenset({"accepted", "revalidating", "error"})
LEVELS = frozenset({"memory", "redis"})
REFUSED = frozenset({"too-large", "demand"})
PARTS = frozenset(
    {
        "configuration", "engine", "mongodb", "event-layer", "matching", "store", "sketch", "grid", "cdn", "origin", "admin",
        "effects", "handler", "read-path", "routes", "statistics",
    }
)  # fmt: skip
"""Parts that failures() names; docs/failure_modes.md describes each."""
MATCH_TYPES = frozenset(match.value for match in MatchType)
REASONS = frozenset(reason.value for reason in Uncacheable) | {
    # of the answer
    "status", "set-cookie", "no-store", "private", "no-cache", "partial", "vary", "unspecified", "trailers", "stream",
    "too-large", "length", "unfinished", "extension", "rerouted",
    # of the request
    "request", "request-body", "precondition", "override", "host", "authorization", "cookie", "credentials", "unkeyed",
    # of the route
    "bypass", "private-route", "scope",
    # of the moment
    "refused", "lagging", "failed", "died", "lifetime", "not-serving", "unsettled",
}  # fmt: skip
"""Why an answer was not cached, or a request was passed by."""

_WIDENED = (
    ("collation ", "collation"), ("pipeline: widened to its leading", "leading-match"),
    ("pipeline without a leading", "pipeline"), ("pipeline that reads its own", "self-join"),
    ("read by a pipeline of another", "lookup"), ("let:", "variables"), ("$natural", "sort"), ("sort by", "sort"),
    ("a regular expression", "regular-expression"), ("$text", "text"), ("a text index", "text"), ("$near", "geo"),
    ("a polygon", "geo"), ("a filter too deeply", "depth"), ("an expression that is nested", "depth"),
)  # fmt: skip
WIDENED = frozenset(name for _, name in _WIDENED) | {"json-schema", "operator"}


def widening(reason: str) -> str:
    """The kind of a plan's reason, which may quote the query."""
    if "$jsonSchema" in reason:
        return "json-schema"
    return next((name for start, name in _WIDENED if reason.startswith(start)), "operator")


M = TypeVar("M", Counter, Gauge, Histogram)


class Labelled(Generic[M]):
    """A metric whose labels take the values of their vocabularies only."""

    def __init__(self, metric: M, vocabularies: Sequence[Vocabulary]) -> None:
        self._metric: M = metric
        self._vocabularies = vocabularies
        self._named: list[set[str]] = [set() for _ in vocabularies]
        self._series: dict[tuple[str, ...], M] = {}

    def labels(self, *values: str) -> M:
        """The series of these values, in the order in which the labels were declared. Raises ValueError for too many or few."""
        series = self._series.get(values)
        if series is None:
            bounded = tuple(_bounded(*place) for place in zip(values, self._vocabularies, self._named, strict=True))
            series = self._metric.labels(*bounded)
            if bounded == values:  # so there are no more of these than series
                self._series[values] = series
        return series

    def remove(self, *values: str) -> None:
        """Say nothing of these values any more. No error if nothing was said."""
        self._series.pop(values, None)
        with suppress(KeyError):
            self._metric.remove(*values)


class Gathered(Histogram):
    """A histogram without labels that takes an observation at the cost of a list entry: they are sorted in when somebody looks,
    or when there are very many. May be used from several threads."""

    _type = "histogram"

    def __init__(self, name: str, documentation: str, **options: Any) -> None:
        self._waiting: deque[float] = deque()
        super().__init__(name, documentation, **options)

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        self._waiting.append(amount)
        if len(self._waiting) >= _MOST_WAITING:
            self._sort_in()

    def collect(self) -> Iterable[Metric]:
        self._sort_in()
        return super().collect()

    def _sort_in(self) -> None:
        with suppress(IndexError):
            while True:
                super().observe(self._waiting.popleft())


def _bounded(value: str, vocabulary: Vocabulary, named: set[str]) -> str:
    if vocabulary is not None:
        return value if value in vocabulary else OTHER
    if value not in named:
        if len(named) >= MOST_NAMES or _NAME.fullmatch(value) is None:
            return OTHER
        named.add(value)
    return value
