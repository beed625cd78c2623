"""Data objects of a matching node: tenants, filters, active queries, live registrations and subscribed queries.

A `Filter` is a predicate on a namespace, however many queries use it; an `ActiveQuery` is one normalised query of a
`Tenant`; a `LiveRegistration` is one registration that has not been invalidated yet. A `SubscribedQuery` has one
`SubscribedSide`, with its filter, for each collection that it reads.

Mutable, slotted, and without what can be shared or computed again: a node may hold a million of each. They refer to one
another and to nothing that acts on them; what acts is in the modules above (namespace.py, tenants.py,
subscription_matching.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quaestor.invalidation.matching.compact_set import CompactSet
from quaestor.invalidation.matching.contributors import Kept
from quaestor.invalidation.matching.sampling_set import SamplingSet
from quaestor.invalidation.matching.trial_rates import Tried
from quaestor.model import Document, Version
from quaestor.planning.access_entries import Access, hash_key, is_broad, names_ids
from quaestor.planning.rules import Rules

Matches = Callable[[Document], bool]


class Filter:
    """Predicate on the records of one namespace, evaluated at most once per image.

    identity: equal for equal predicates, however written.
    source: the filter document as BSON.
    matches: compiled, or None if it is not at hand (see predicates.py).
    access: where the index keeps it; None: always tried.
    queries: the active queries that share it.
    sides: the sides of subscribed queries that share it.
    tenant: on whose account it is; None: no active query uses it.
    tried, epoch: see trial_rates.py.
    place: in the set of those that are always tried.
    """

    __slots__ = ("access", "epoch", "identity", "matches", "place", "queries", "sides", "source", "tenant", "tried")

    def __init__(self, identity: bytes, source: bytes, matches: Matches | None = None) -> None:
        self.identity = identity
        self.source = source
        self.matches = matches
        self.access: Access | None = None
        self.queries: ActiveQuery | CompactSet[ActiveQuery] | None = None
        self.sides: SubscribedSide | CompactSet[SubscribedSide] | None = None
        self.tenant: Tenant | None = None
        self.tried = 0
        self.epoch = 0
        self.place = 0

    @property
    def broad(self) -> bool:
        """Whether nearly every write tries it: no index finds it, or by nothing that tells records apart."""
        return is_broad(self.access)

    @property
    def by_id(self) -> bool:
        """Whether the index finds it by the `_id`s that it names, so that a write to any other record cannot concern it."""
        return names_ids(self.access)

    def may_match(self, key: Any) -> bool:
        """Whether a record with this `_id` could match, by the `_id`s that it names. O(those)."""
        return not names_ids(self.access) or hash_key(key) in self.access.keys


FilterSlot = Filter | CompactSet[Filter]
"""One entry of an index: the filters that are kept under it (see compact_set.py)."""


class ActiveQuery:
    """One normalised query of one tenant, with its registrations.

    filter: None if every write to the namespace changes it.
    born_s: when it was first registered, in seconds since the epoch.
    bytes: memory that it is taken to cost with its registrations.
    place: in the tenant's set of queries to sample.
    """

    __slots__ = ("born_s", "bytes", "filter", "place", "query_id", "registrations", "rules", "tenant")

    def __init__(self, query_id: str, rules: Rules, tenant: Tenant, *, born_s: int) -> None:
        self.query_id = query_id
        self.rules = rules
        self.tenant = tenant
        self.born_s = born_s
        self.bytes = 0
        self.place = 0
        self.filter: Filter | None = None
        self.registrations: LiveRegistration | CompactSet[LiveRegistration] | None = None


class LiveRegistration:
    """One registration that no write has changed yet, with what it knows of its result.

    members: hashes of the members that belong to this write partition; None if the members are unknown.
    empty: the result is known to have no members, in any write partition.
    boundary: sort key of the last member of a full, sorted window, or None.
    needs_before: whether the record matched before a write matters, and membership does not tell.
    kept: what its contributors tell beside that, see contributors.py.
    """

    __slots__ = (
        "boundary",
        "empty",
        "expires_at_ms",
        "id",
        "kept",
        "members",
        "needs_before",
        "query",
        "read_at",
        "since",
    )

    def __init__(
        self,
        registration_id: str,
        query: ActiveQuery,
        *,
        since: Version,
        read_at: Version,
        members: tuple[int, ...] | None,
        empty: bool,
        boundary: Any,
        needs_before: bool,
        expires_at_ms: int,
    ) -> None:
        self.id = registration_id
        self.query = query
        self.since = since
        self.read_at = read_at
        self.members = members
        self.empty = empty
        self.boundary = boundary
        self.needs_before = needs_before
        self.expires_at_ms = expires_at_ms
        self.kept: Kept | None = None


class Tenant:
    """Account of one app (one deployment) that has registrations in the node.

    queries: by query_id.
    sampled: the same queries, to draw some at random.
    unindexed: its filters without an index, by the namespace whose writes try them.
    registrations: how many it has.
    bytes: memory that they are taken to cost, see memory_estimates.py.
    tried, epoch: see trial_rates.py.
    failed: predicates of its queries that raised.
    place: in the set of tenants to sample.
    """

    __slots__ = (
        "bytes",
        "epoch",
        "failed",
        "name",
        "place",
        "queries",
        "registrations",
        "sampled",
        "tried",
        "unindexed",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.queries: dict[str, ActiveQuery] = {}
        self.sampled: SamplingSet[ActiveQuery] = SamplingSet()
        self.unindexed: dict[Tried, SamplingSet[Filter]] = {}
        self.registrations = 0
        self.bytes = 0
        self.tried = 0
        self.epoch = 0
        self.failed = 0
        self.place = 0


class SubscribedQuery:
    """One query that subscribers follow, as its stage announced it.

    token: names the announcement.
    version: every write up to it is contained in what was announced.
    fixed: bytes that it is taken to cost, without its members.
    sides: one for each collection that it reads.
    """

    __slots__ = ("expires_at_ms", "fixed", "query_id", "sides", "token", "version")

    def __init__(self, query_id: str, token: str, version: Version, expires_at_ms: int) -> None:
        self.query_id = query_id
        self.token = token
        self.version = version
        self.expires_at_ms = expires_at_ms
        self.fixed = 0
        self.sides: list[SubscribedSide] = []


class SubscribedSide:
    """One collection of a subscribed query, with the filter that its records pass.

    members: hashes of the records that match; None: before-images tell.
    most: number of members above which it should be announced anew (`SubscribedQueries.crowded`).
    """

    __slots__ = ("filter", "members", "most", "namespace", "query")

    def __init__(self, query: SubscribedQuery, namespace: str, item: Filter, *, by_images: bool) -> None:
        self.query = query
        self.namespace = namespace
        self.filter = item
        self.members: set[int] | None = None if by_images else set()
        self.most = 0
