"""Data objects of a matching node: tenants, filters, active queries, live registrations and subscribed queries.

A `Filter` is a predicate on a namespace, shared by any number of queries. An `ActiveQuery` is a normalised query of a
`Tenant`. A `LiveRegistration` is a registration that no write has invalidated yet. A `SubscribedQuery` has a
`SubscribedSide`, with its filter, for each collection that it reads.

The objects are mutable and slotted, and leave out data that can be shared or computed again: a node may hold a million of each.
The objects refer only to one another. The code that acts on them is in namespace.py, tenants.py and subscription_matching.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quaestor.invalidation.matching.compact_set import CompactSet
from quaestor.invalidation.matching.contributors import Kept
from quaestor.invalidation.matching.sampling_set import SamplingSet
from quaestor.invalidation.matching.trial_rates import Tried
from quaestor.model import Document, Registration, Version
from quaestor.planning.access_entries import Access, hash_key, is_broad, names_ids
from quaestor.planning.rules import Rules

Matches = Callable[[Document], bool]


class Filter:
    """Predicate on the records of one namespace, evaluated at most once per image.

    identity: equal for equal predicates, in any spelling.
    source: the filter document as BSON.
    matches: compiled predicate; None if it must be compiled first (see predicates.py).
    access: access path under which the index keeps the filter; None: every write tries it.
    queries: the active queries that share the filter.
    sides: the sides of subscribed queries that share the filter.
    tenant: tenant whose account pays for the filter; None: no active query uses it.
    tried, epoch: see trial_rates.py.
    place: position in the set of filters that every write tries.
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
        """Whether nearly every write tries the filter: it has no index, or one that does not tell records apart."""
        return is_broad(self.access)

    @property
    def by_id(self) -> bool:
        """Whether the index finds the filter by the `_id`s that it names. A write to any other record then cannot concern it."""
        return names_ids(self.access)

    def may_match(self, key: Any) -> bool:
        """Whether a record with this `_id` could match, by the `_id`s that the filter names. O(named `_id`s)."""
        return not names_ids(self.access) or hash_key(key) in self.access.keys


FilterSlot = Filter | CompactSet[Filter]
"""Slot of an index: the filters kept under one entry (see compact_set.py)."""


class ActiveQuery:
    """One normalised query of one tenant, with its registrations.

    filter: None if every write to the namespace changes the query.
    born_s: time of the first registration, in seconds since the epoch.
    bytes: estimated memory of the query and its registrations.
    place: position in the tenant's set of queries to sample.
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
    """Registration that no write has changed yet, with its knowledge of the result.

    members: hashes of the members in this write partition; None if the members are unknown.
    empty: the result is known to have no members, in any write partition.
    boundary: sort key of the last member of a full, sorted window, or None.
    needs_before: membership does not decide, so it matters whether the record matched before a write.
    kept: the contributors beside the members, see contributors.py.
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
        registration: Registration,
        query: ActiveQuery,
        *,
        members: tuple[int, ...] | None,
        boundary: Any,
        needs_before: bool,
    ) -> None:
        self.id = registration.id
        self.query = query
        self.since = registration.since
        self.read_at = registration.read_at
        self.members = members
        self.empty = registration.members == ()
        self.boundary = boundary
        self.needs_before = needs_before
        self.expires_at_ms = registration.expires_at_ms
        self.kept: Kept | None = None


class Tenant:
    """Account of an app (one deployment) that has registrations in the node.

    queries: active queries by query_id.
    sampled: the same queries, for random samples.
    unindexed: the tenant's filters without an index, by the namespace whose writes try them.
    registrations: number of registrations.
    bytes: estimated memory of the registrations, see memory_estimates.py.
    tried, epoch: see trial_rates.py.
    failed: number of its predicates that raised.
    place: position in the set of tenants to sample.
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
    """Query that subscribers follow, as its stage announced it.

    token: identifier of the announcement.
    version: the announcement contains every write up to this version.
    fixed: estimated bytes without the members.
    sides: one side for each collection that the query reads.
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
    """Collection of a subscribed query, with the filter that its records pass.

    members: hashes of the matching records; None: before-images decide.
    most: number of members above which the query is announced anew (`SubscribedQueries.crowded`).
    """

    __slots__ = ("filter", "members", "most", "namespace", "query")

    def __init__(self, query: SubscribedQuery, namespace: str, item: Filter, *, by_images: bool) -> None:
        self.query = query
        self.namespace = namespace
        self.filter = item
        self.members: set[int] | None = None if by_images else set()
        self.most = 0
