"""Hooks of one Quaestor: what an application may observe of it, as frozen payloads given to callables.

An observer that raises is counted as a failure of the part `observer`, logged, and called again the next time; it never breaks
what it observes. While nobody observes, nothing is made or called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswered:
    """One request that the cache has answered, or has made its handler answer. Those that bypass it are not told.

    outcome: "hit", "miss" or "coalesced".
    detail: of a hit where it came from (vocabularies.LAYERS), of a miss why there was nothing to answer with
        (vocabularies.MISSES), of a coalesced one where it has waited (vocabularies.WAITS).
    seconds: request to answer, of misses; None of others: they are not measured.
    """

    outcome: str
    detail: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidationDone:
    """One invalidation whose effects are done: for dashboards and measurements. Times are ms since the epoch.

    keys: of the entries.
    written_at_ms: when the database performed the write.
    refused_at_ms: from then on this process no longer served it.
    evicted_at_ms: it was gone from the stores.
    purged_at_ms: every CDN had acknowledged, None if no copy was outside.
    exact: see model.Invalidated.
    """

    keys: tuple[str, ...]
    written_at_ms: int
    refused_at_ms: int
    evicted_at_ms: int
    purged_at_ms: int | None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerKept:
    """One answer that became an entry guarded by queries. For dashboards.

    key: of the entry.
    query_ids: the queries.
    kind: collections that they read from, as estimators are told them.
    write_rate_hz: of the writes to their members.
    given_ms: estimated lifetime of copies outside; None: there are none.
    cost_ms: what the handler took.
    depends: says which queries these are, by their shape; no values.
    """

    key: str
    query_ids: tuple[str, ...]
    kind: str
    write_rate_hz: float
    given_ms: int | None
    cost_ms: int
    depends: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSeen:
    """One failure of a part that Quaestor depends on.

    part: one of vocabularies.PARTS.
    name: of the log event, constant and dotted.
    error: what it says.
    fields: what the log line says besides.
    """

    part: str
    name: str
    error: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class ReadObserver(Protocol):
    """Observer of answered requests, called on the event loop before the answer has left. It must be quick."""

    def __call__(self, read: ReadAnswered, /) -> None: ...


class InvalidationObserver(Protocol):
    """Observer of invalidations, called on the event loop when their effects are done."""

    def __call__(self, done: InvalidationDone, /) -> None: ...


class FailureObserver(Protocol):
    """Observer of failures, called in whatever thread met the failure."""

    def __call__(self, failure: FailureSeen, /) -> None: ...


class Observers(list[Callable[[Payload], None]], Generic[Payload]):
    """Observers of one kind of payload: a list, so that asking whether there are any costs next to nothing.

    on_error: told of each observer that raises.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__()
        self._on_error = on_error

    def tell(self, payload: Payload) -> None:
        """Call all of them, in the order in which they were registered. Raises nothing."""
        for observer in self:
            try:
                observer(payload)
            except Exception as error:  # whatever an application's code raises: it is no part of what it observes
                self._on_error(error)


class Hooks:
    """Observers by kind.

    on_error: told of each observer that raises, in its thread.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self.reads: Observers[ReadAnswered] = Observers(on_error)
        self.kept: Observers[AnswerKept] = Observers(on_error)
        self.invalidations: Observers[InvalidationDone] = Observers(on_error)
        self.failures: Observers[FailureSeen] = Observers(on_error)


HIT_IN_MEMORY: Final = ReadAnswered(outcome="hit", detail="memory")
"""Made once: hits in memory are many."""
