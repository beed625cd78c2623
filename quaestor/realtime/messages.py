"""Messages of a subscribed query, between app servers, the stage of its query partition and the cells. All values are frozen.

```
app server --Subscription, Unsubscription--> stage --Announcement, LeaseRenewal, QueriesEnded--> cells   query pipeline

cells --MatchedWrite, CellReady, MatchingLost, CellProgress, CellStarted--> stage                       matched pipeline

stage --FullResult, ResultChange, SubscriptionsEnded, StageProgress--> app servers                      results pipeline
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
    """A subscription of an app server to a query's result, or (the same again) its renewal.

    id: of the app server's subscription to this query, unique for ever. All its subscribers share one subscription.
    fresh: the app server has no result to continue from: send the full result.
    expires_at_ms: end of the lease.
    exact: every change must be reported; the stage checks before its answer whether post-images are recorded now.
    poll_interval_ms: the result is read again at most once in this time; 0: the stage's rule. Of several subscriptions to a
        query the smallest counts.
    """

    id: str
    tenant: str
    query_id: str
    query: Query
    fresh: bool
    expires_at_ms: int
    exact: bool = False
    poll_interval_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscription:
    """The end of subscriptions to one query, sent by their app server, or by the stage that refuses them."""

    query_id: str
    subscription_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A subscribed query, announced to the cells of its partition.

    The cells match it from now on: against retained writes newer than `version`, then live.

    token: names this announcement; another announcement of the same query replaces it.
    members: hashes of the records that were read, 8 bytes each, if membership is the prior state; None by before-images.
        One tuple for each side of the query (its own namespace, then the joined ones), one value for each write partition.
    """

    query_id: str
    token: str
    query: Query
    memory: PriorState
    version: Version
    members: tuple[tuple[bytes, ...], ...] | None
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRenewal:
    """Renewal of the leases of announced queries: (query id, token)."""

    queries: tuple[tuple[str, str], ...]
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriesEnded:
    """The end of announced queries: they have no subscriber any more."""

    query_ids: tuple[str, ...]


QueryEvent = Subscription | Unsubscription | Announcement | LeaseRenewal | QueriesEnded
"""On the query pipeline, beside registrations and their cancellations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedWrite:
    """One write that concerns these queries; None: all of the query partition (gaps and collection events)."""

    query_ids: tuple[str, ...] | None
    image: AfterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReady:
    """A cell's acknowledgement that it matches an announcement; all that it had to replay lies before this entry."""

    cell: Cell
    query_id: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchingLost:
    """A cell's word that it does not match a query, or no longer.

    final: nor will it if asked again (it is not a query, or there is no memory for it).
    """

    cell: Cell
    query_id: str
    token: str
    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CellProgress:
    """Progress of a cell: all that it matched up to this version (0: unknown) and moment lies before this entry."""

    cell: Cell
    version: Version
    fresh_as_of_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStarted:
    """The start of a cell, which knows no announced queries then."""

    cell: Cell


MatchedEvent = MatchedWrite | CellReady | MatchingLost | CellProgress | CellStarted
"""On the matched pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullResult:
    """The full result of a query. To subscribers with an older one their own app server tells the differences.

    subscription_ids: for whom; None: for all that have a result already.
    epoch: one life of the query in a stage, greater than every one before.
    sequence: of the newest change that is contained.
    rows: key and document, in order if `ordered`.
    lacking: collections of the query without post-images; None: its stage does not say (it is of an earlier version).
    read_version: of the newest reading. The rows contain every write up to it; 0: its stage does not say.
    """

    query_id: str
    subscription_ids: tuple[str, ...] | None
    epoch: str
    sequence: int
    version: Version
    ordered: bool
    rows: tuple[tuple[Any, Any], ...]
    lacking: tuple[str, ...] | None = None
    read_version: Version = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultChange:
    """One change of a result. Changes of one query and epoch are numbered without holes.

    reread: it is the difference to what was read anew, not what one write did. A recomputed result then contains exactly the
        writes up to `version`.
    fresh_as_of_ms: of a `reread`, the same as a moment; 0: not known.
    """

    query_id: str
    epoch: str
    sequence: int
    version: Version
    written_at_ms: int
    events: tuple[ResultEvent, ...]
    reread: bool = False
    fresh_as_of_ms: int = 0

    @property
    def growth(self) -> int:
        """Number of rows that the result has more after it; negative: fewer."""
        added = sum(event.match_type is MatchType.ADD for event in self.events)
        return added - sum(event.match_type is MatchType.REMOVE for event in self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionsEnded:
    """The end of these subscriptions, said by the stage. None: of all to the query.

    again: they may be renewed at once, only their leases were over.
    """

    query_id: str
    subscription_ids: tuple[str, ...] | None
    reason: str
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProgress:
    """Progress of a stage: every result but those of `behind` contains every write up to this version and moment.

    The changes that these writes made lie before this entry.

    stage: which one; the epochs of its queries begin with it.
    """

    stage: str
    version: Version
    fresh_as_of_ms: int
    behind: tuple[str, ...]


ResultMessage = FullResult | ResultChange | SubscriptionsEnded | StageProgress
"""On the results pipeline."""
