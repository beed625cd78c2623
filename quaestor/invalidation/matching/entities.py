"""What a matching node keeps of queries and registrations: three small mutable objects, one level below the other.

A `Filter` is a predicate on a namespace, however many queries use it; an `ActiveQuery` is one normalised query; a `Live`
is one registration that has not been invalidated yet. Slotted, and without what can be shared or computed again: a node
may hold a million of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quaestor.invalidation.matching.compact_set import CompactSet
from quaestor.model import Document, Version
from quaestor.planning.access_paths import Access

if TYPE_CHECKING:
    from quaestor.invalidation.matching.subscription_matching import Side
    from quaestor.invalidation.matching.tenants import Tenant
    from quaestor.planning.rules import Rules

Matches = Callable[[Document], bool]


class Filter:
    """One predicate, evaluated at most once per image.

    source: the filter document as BSON.
    matches: compiled, or None if it is not at hand (see predicates.py).
    access: where the index keeps it; None: always tried.
    tenant: who brought it.
    tried, epoch: see work.py.
    place: in the pool of those that are always tried.
    standing: the sides of standing queries that it decides.
    """

    __slots__ = ("access", "epoch", "identity", "matches", "place", "queries", "source", "standing", "tenant", "tried")

    def __init__(self, identity: bytes, source: bytes, matches: Matches | None = None) -> None:
        self.identity = identity
        self.source = source
        self.matches = matches
        self.access: Access | None = None
        self.queries: ActiveQuery | CompactSet[ActiveQuery] | None = None
        self.standing: Side | CompactSet[Side] | None = None
        self.tenant: Tenant | None = None
        self.tried = 0
        self.epoch = 0
        self.place = 0


class ActiveQuery:
    """One normalised query of one tenant, and its registrations.

    filter: None if every write to the namespace changes it.

    born_s: when it was first registered.
    bytes: what it costs with its registrations.
    place: in the tenant's pool.
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
        self.registrations: Live | CompactSet[Live] | None = None


class Live:
    """One registration.

    members: hashes of the members that belong to this write partition; None if the members are unknown.
    empty: the result is known to have no members, in any write partition.
    boundary: sort key of the last member of a full, sorted window, or None.
    needs_before: whether the record matched before a write matters, and membership does not tell.
    """

    __slots__ = ("boundary", "empty", "expires_at_ms", "id", "members", "needs_before", "query", "read_at", "since")

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
