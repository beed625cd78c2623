"""Hooks of one Quaestor: frozen payloads about its work, passed to callables of the application.

An observer that raises is counted as a failure of the part `observer`, and logged. The observer is called again the
next time, and never breaks the observed work. Without observers, no payload is made and nothing is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswered:
    """Request that the cache has answered, or has made its handler answer. Requests that bypass the cache are not reported.

    outcome: "hit", "miss" or "coalesced".
    detail: source of a hit (vocabularies.LAYERS), reason of a miss (vocabularies.MISSES), place of a coalesced request's wait
        (vocabularies.WAITS).
    seconds: request to answer, of misses; None for others, which are not measured.
    """

    outcome: str
    detail: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidationDone:
    """Invalidation whose effects are done: for dashboards and measurements. Times are ms since the epoch.

    keys: keys of the entries.
    written_at_ms: time of the write in the database.
    refused_at_ms: time from which this process no longer served the entries.
    evicted_at_ms: time at which the stores had lost them.
    purged_at_ms: time at which every CDN had acknowledged; None if no copy was outside.
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
    """Answer that became an entry guarded by queries. For dashboards.

    key: key of the entry.
    query_ids: the queries.
    kind: collections that they read from, in the form that estimators receive.
    write_rate_hz: rate of writes to their members.
    given_ms: estimated lifetime of copies outside; None: there are none.
    cost_ms: duration of the handler.
    depends: returns the shapes of these queries, without values.
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
    """Failure of a part that Quaestor depends on.

    part: one of vocabularies.PARTS.
    name: name of the log event, constant and dotted.
    error: text of the error.
    fields: further fields of the log line.
    """

    part: str
    name: str
    error: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class ReadObserver(Protocol):
    """Observer of answered requests, called on the event loop before the answer has left; must be quick."""

    def __call__(self, read: ReadAnswered, /) -> None: ...


class InvalidationObserver(Protocol):
    """Observer of invalidations, called on the event loop when their effects are done."""

    def __call__(self, done: InvalidationDone, /) -> None: ...


class FailureObserver(Protocol):
    """Observer of failures, called in the thread of the failure."""

    def __call__(self, failure: FailureSeen, /) -> None: ...


class Observers(list[Callable[[Payload], None]], Generic[Payload]):
    """Observers of one kind of payload: a list, so that the check for observers costs next to nothing.

    on_error: called for each observer that raises.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__()
        self._on_error = on_error

    def tell(self, payload: Payload) -> None:
        """Call all observers, in the order of their registration. Raises nothing."""
        for observer in self:
            try:
                observer(payload)
            except Exception as error:  # an application's code may raise anything; it is no part of the observed work
                self._on_error(error)


class Hooks:
    """Observers by kind.

    on_error: called for each observer that raises, in its thread.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self.reads: Observers[ReadAnswered] = Observers(on_error)
        self.kept: Observers[AnswerKept] = Observers(on_error)
        self.invalidations: Observers[InvalidationDone] = Observers(on_error)
        self.failures: Observers[FailureSeen] = Observers(on_error)


HIT_IN_MEMORY: Final = ReadAnswered(outcome="hit", detail="memory")
"""Payload of a hit in memory, made once because such hits are many."""
