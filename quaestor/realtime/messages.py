"""What flows around a standing query: between app servers, stage and cells. All values are frozen.

```
app server --Subscription, Unsubscription--> stage --Standing, StillStanding, NoLonger--> cells    query pipeline
cells --Matched, Ready, Lost, Reached, CellStarted--> stage                                        matched pipeline
stage --Shown, Changed, Failed, Progress--> app servers                                            results pipeline
```

All three pipelines are those of the query's partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quaestor.incremental import PriorState, ResultEvent
from quaestor.model import AfterImage, Cell, MatchType, Query, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """An app server wants to follow a query's result, or (the same again) goes on wanting it.

    id: of the app server's interest in this query, unique for ever; however many subscribers share it there.
    fresh: it has no result to go on from: show it the whole one.
    expires_at_ms: when its lease is over.
    """

    id: str
    tenant: str
    query_id: str
    query: Query
    fresh: bool
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscription:
    query_id: str
    subscription_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The cells of the column match this query from now on: against retained writes newer than `version`, then live.

    token: names this announcement; another one of the same query replaces it.
    members: by membership, for each side of the query (its own namespace, then the joined ones), for each write
        partition, the hashes of the records that were read, 8 bytes each; None by before-images.
    """

    query_id: str
    token: str
    query: Query
    memory: PriorState
    version: Version
    members: tuple[tuple[bytes, ...], ...] | None
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StillStanding:
    """The stage goes on maintaining these: (query id, token)."""

    queries: tuple[tuple[str, str], ...]
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLonger:
    """Nobody follows these queries any more."""

    query_ids: tuple[str, ...]


QueryEvent = Subscription | Unsubscription | Standing | StillStanding | NoLonger
"""On the query pipeline, beside registrations and their cancellations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """One write that concerns these queries; None: all of the column (gaps and collection events)."""

    query_ids: tuple[str, ...] | None
    image: AfterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The cell matches the announcement; all that it had to replay lies before this entry."""

    cell: Cell
    query_id: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The cell does not match the query.

    final: nor will it if asked again (it is not a query, there is no room).
    """

    cell: Cell
    query_id: str
    token: str
    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What the cell found up to this version (0: unknown) and moment lies before this entry."""

    cell: Cell
    version: Version
    fresh_as_of_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStarted:
    """The cell begins with no standing queries."""

    cell: Cell


MatchedEvent = Matched | Ready | Lost | Reached | CellStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The whole result. Whoever has another one is told the differences by his own app server.

    subscription_ids: for whom; None: for all that have a result already.
    epoch: one life of the query in a stage, greater than every one before.
    sequence: of the newest change that is contained.
    rows: key and document, in order if `ordered`.
    """

    query_id: str
    subscription_ids: tuple[str, ...] | None
    epoch: str
    sequence: int
    version: Version
    ordered: bool
    rows: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One step of the result. Steps of one query and epoch are numbered without holes."""

    query_id: str
    epoch: str
    sequence: int
    version: Version
    written_at_ms: int
    events: tuple[ResultEvent, ...]

    @property
    def records(self) -> int:
        """How many more rows there are after it; negative: fewer."""
        added = sum(event.match_type is MatchType.ADD for event in self.events)
        return added - sum(event.match_type is MatchType.REMOVE for event in self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """These subscriptions are over. None: all of the query.

    again: it may be subscribed again, only the lease was over.
    """

    query_id: str
    subscription_ids: tuple[str, ...] | None
    reason: str
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Every result but those of `behind` contains every write up to this version and moment; what changed lies before.

    stage: which one; the epochs of its queries begin with it.
    """

    stage: str
    version: Version
    fresh_as_of_ms: int
    behind: tuple[str, ...]


ResultMessage = Shown | Changed | Failed | Progress
