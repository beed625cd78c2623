"""Subscribed queries of a matching node, and the search for queries that a write concerns: the filtering stage.

A write concerns a query if the record matches one of its sides after the write, or belonged to it before. The announcement
of the query decides how the state before is known: by membership or by before-images. Membership is a set of hashes of this
cell's matching records, which follows the writes. The filters share the index of the one-shot registrations. The cost of a
write therefore does not grow with the queries that cannot match. The result is a superset; the later stage decides.

Source: InvaliDB, PVLDB 2020, section 5.1, the filtering stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import bson

from quaestor.errors import QueryError
from quaestor.incremental import PriorState
from quaestor.incremental.sides import SidePlan, sides_of, unpack_members
from quaestor.invalidation.matching.entities import SubscribedQuery, SubscribedSide
from quaestor.invalidation.matching.memory_estimates import SIDE_MEMBER, side_bytes
from quaestor.invalidation.matching.namespace import Namespace
from quaestor.invalidation.matching.predicate_results import PredicateResults
from quaestor.invalidation.matching.predicates import Predicates, kept_compiled
from quaestor.invalidation.matching.retention import Retained, Retention
from quaestor.invalidation.matching.subscribed_sides import MemoryUse, SubscribedSides
from quaestor.invalidation.matching.tally import Tally
from quaestor.model import AfterImage, Query, Version, WriteKind
from quaestor.namespaces import covers
from quaestor.planning.access_entries import is_broad
from quaestor.planning.index_order import ANY_INDEX
from quaestor.query.encoding import OPTIONS

_GROWTH: Final = 10_000
"""Members beyond twice the announced number at which a query is announced anew: a window's membership grows without end."""


def is_subscribed(event: AfterImage) -> bool:
    """Whether a collection event may change a subscribed result.

    Subscribed queries have their own order. A change of indexes therefore counts only if one may hold text.
    """
    return not event.of_indexes or ANY_INDEX in (event.changed or ())


class AnnouncementError(QueryError):
    """Error: the cell does not match a query that was announced to it; the message is the reason.

    final: a repeated announcement would fail too.
    """

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


class SubscribedQueries:
    """Subscribed queries of one node. Shares its namespaces, its retention and its predicates. Not thread-safe."""

    def __init__(
        self,
        namespaces: dict[str, Namespace],
        retention: Retention,
        predicates: Predicates,
        tally: Tally,
        *,
        max_queries: int,
        max_unindexed: int,
        max_bytes: int,
    ) -> None:
        """Begin without queries.

        max_queries: largest number of different queries.
        max_unindexed: largest number of queries without an index in one namespace.
        max_bytes: limit in bytes, as memory_estimates.py estimates them. A new query beyond the limit is refused; members
            added by writes are accepted.
        """
        self._namespaces = namespaces
        self._retention = retention
        self._predicates = predicates
        self._tally = tally
        self._max_queries = max_queries
        self._max_unindexed = max_unindexed
        self._max_bytes = max_bytes
        self._memory = MemoryUse()
        self._queries: dict[str, SubscribedQuery] = {}
        self._concerned: dict[SubscribedQuery, None] = {}

    def __len__(self) -> int:
        return len(self._queries)

    @property
    def held_bytes(self) -> int:
        """Estimated memory in bytes."""
        return self._memory.bytes

    def take(self) -> tuple[str, ...]:
        """Return and forget the queries concerned by the writes since the last call."""
        if not self._concerned:
            return ()
        concerned = tuple(query.query_id for query in self._concerned)
        self._concerned.clear()
        return concerned

    def crowded(self, query_ids: Iterable[str]) -> Iterator[SubscribedQuery]:
        """Yield the queries whose membership has outgrown the announcement: they should be announced anew."""
        for query_id in query_ids:
            query = self._queries.get(query_id)
            if query is not None and any(side.members and len(side.members) > side.most for side in query.sides):
                yield query

    def announce(
        self,
        query_id: str,
        token: str,
        query: Query,
        *,
        prior_state: PriorState,
        version: Version,
        members: list[bytes] | None,
        expires_at_ms: int,
    ) -> list[AfterImage]:
        """Match this query from now on.

        Returns the retained images newer than `version` that concern the query, oldest first. An announcement replaces the
        former one of the same query. Raises AnnouncementError; then neither is matched. O(size of query and members + writes
        replayed).

        token: identifier of this announcement.
        prior_state: how it is known whether a record matched before a write.
        version: the members contain every write up to it, also writes that this cell has yet to see.
        members: this cell's share for each side (see incremental/sides.py); None with before-images.
        """
        again = query_id in self._queries
        self.end(query_id)
        self._check_version(version)
        if len(self._queries) >= self._max_queries:
            raise AnnouncementError(f"this cell already holds its {self._max_queries} subscribed queries", final=True)
        from quaestor.incremental import plan_following  # few applications subscribe to queries: see docs/adr/0023

        plans = sides_of(plan_following(query, prior_state))
        if members is not None and len(members) != len(plans):
            raise AnnouncementError(f"announced with {len(members)} sides, but has {len(plans)}", final=True)
        self._check_unindexed(plans)
        shares = [None if members is None else unpack_members(members[place]) for place in range(len(plans))]
        fixed = sum(map(_side_bytes, plans))
        if not again:
            self._check_memory(fixed + sum(SIDE_MEMBER * len(share) for share in shares if share is not None))
        subscribed = self._queries[query_id] = SubscribedQuery(query_id, token, version, expires_at_ms)
        subscribed.fixed = fixed
        self._memory.bytes += fixed
        try:
            for plan, share in zip(plans, shares, strict=True):
                subscribed.sides.append(self._open(subscribed, plan, share))
        except Exception:
            self.end(query_id)
            raise
        namespaces = list(dict.fromkeys(plan.namespace for plan in plans))
        newer = self._retention.newer_than(version, namespaces)
        return [entry.raw for entry in newer if self._replayed(subscribed, entry)]

    def keep(self, query_id: str, token: str, expires_at_ms: int) -> bool:
        """Prolong the lease of a query. False: the query is not matched, or not under this token."""
        query = self._queries.get(query_id)
        if query is None or query.token != token:
            return False
        query.expires_at_ms = max(query.expires_at_ms, expires_at_ms)
        return True

    def end(self, query_id: str) -> None:
        """Stop matching a query; unknown ones are ignored. O(its members)."""
        query = self._queries.pop(query_id, None)
        if query is None:
            return
        self._concerned.pop(query, None)
        self._memory.bytes -= query.fixed
        for side in query.sides:
            self._close(side)

    def expire(self, now_ms: int) -> None:
        """Forget queries whose lease is over, because their stage is gone. O(queries)."""
        for query_id in [query.query_id for query in self._queries.values() if query.expires_at_ms <= now_ms]:
            self.end(query_id)

    def _check_version(self, version: Version) -> None:
        floor = self._retention.floor
        if floor is None:
            raise AnnouncementError("this cell has not seen any write or tick yet", final=False)
        if version < floor:
            raise AnnouncementError(f"read at {version}, but writes are only retained after {floor}", final=False)

    def _check_unindexed(self, plans: Iterable[SidePlan]) -> None:
        for plan in plans:
            namespace = self._namespaces.get(plan.namespace)
            sides = None if namespace is None else namespace.subscribed
            if _is_broad(plan) and sides is not None and sides.unindexed >= self._max_unindexed:
                reason = f"every write already tries {self._max_unindexed} subscribed queries without an index"
                raise AnnouncementError(reason, final=True)

    def _check_memory(self, size: int) -> None:
        if self.held_bytes + size > self._max_bytes:
            raise AnnouncementError(
                f"it takes {size} bytes here, but {self.held_bytes} of this cell's {self._max_bytes} for "
                "subscribed queries are taken: narrow the query, or add write or query partitions",
                final=True,
            )

    def _open(self, query: SubscribedQuery, plan: SidePlan, members: Sequence[int] | None) -> SubscribedSide:
        namespace = self._namespaces.get(plan.namespace)
        if namespace is None:
            namespace = self._namespaces[plan.namespace] = Namespace()
        sides = namespace.subscribed
        if sides is None:
            sides = namespace.subscribed = SubscribedSides(self._concerned, self._memory)
        item = namespace.shared_filter(plan.predicate, plan.condition, plan.access)
        self._predicates.announced(item, plan.predicate)
        side = SubscribedSide(query, plan.namespace, item, by_images=members is None)
        sides.add(side)
        if members is not None:
            side.most = 2 * len(members) + _GROWTH
            for member in members:
                sides.add_member(side, member)
        return side

    def _close(self, side: SubscribedSide) -> None:
        namespace = self._namespaces[side.namespace]
        sides = namespace.subscribed
        if sides is None:
            return
        sides.remove(side)
        self._predicates.ended(side.filter)
        namespace.release(side.filter)
        if not sides.sides:
            namespace.subscribed = None
        if namespace.empty:
            del self._namespaces[side.namespace]

    def _replayed(self, query: SubscribedQuery, entry: Retained) -> bool:
        """Whether a retained write concerns the query; its membership follows the write."""
        image = entry.raw
        if image.kind is WriteKind.COLLECTION:
            return is_subscribed(image) and any(covers(image.namespace, side.namespace) for side in query.sides)
        sides = [side for side in query.sides if side.namespace == image.namespace]
        if not sides:
            return False
        results = PredicateResults(entry.image, self._predicates, self._tally)
        concerned = False
        for side in sides:
            kept = self._namespaces[side.namespace].subscribed
            now = results.matches_now(side.filter)
            member = side.members is not None and entry.identity in side.members
            before = side.members is None and results.matched_before(side.filter) is not False
            concerned = concerned or now or member or before
            if kept is not None:
                (kept.add_member if now else kept.remove_member)(side, entry.identity)
        self._tally.tried += results.tried
        return concerned


def _side_bytes(plan: SidePlan) -> int:
    source = len(bson.encode(plan.condition, codec_options=OPTIONS))
    form = kept_compiled(plan.predicate, source, broad=_is_broad(plan))
    return side_bytes(source, plan.access, compiled=form.predicates, long=form.long)


def _is_broad(plan: SidePlan) -> bool:
    """Whether nearly every write will try the filter; see Filter.broad."""
    return is_broad(plan.access[0] if plan.access else None)
