"""What a cell keeps of standing queries, and which of them a write concerns.

A write concerns a query if the record matches one of its sides after the write, or belonged to it before. Before is told
by membership (hashes of the records that match, this cell's share, kept by the writes themselves once the query stands)
or by before-images, as the query was announced. The filters share the index of the one-shot registrations, so the cost of
a write does not grow with the queries that cannot match; what is found is a superset, the later stage decides.

(InvaliDB, PVLDB 2020, section 5.1: the filtering stage.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import bson

from quaestor.errors import QueryError
from quaestor.event_layer.partitioning import OPTIONS
from quaestor.incremental import Memory, plan_maintenance
from quaestor.incremental.sides import SidePlan, hashes, sides_of
from quaestor.invalidation.matching.compact_set import CompactSet, added, removed, things
from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.invalidation.matching.memory_estimates import STANDING_MEMBER, standing_bytes
from quaestor.invalidation.matching.namespace import Namespace
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.retention import Retained, Retention
from quaestor.invalidation.matching.verdicts import Tally, Verdicts
from quaestor.model import AfterImage, Query, Version, WriteKind
from quaestor.namespaces import covers

_ROOM: Final = 10_000
"""By how much a membership may outgrow twice what was announced before it is announced anew: a window's does without end."""


class StandingError(QueryError):
    """The cell does not match the query.

    final: nor will it if asked again.
    """

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


class Side:
    """One collection of a standing query.

    members: hashes of its records; None by before-images.
    most: see `crowded`.
    """

    __slots__ = ("filter", "members", "most", "namespace", "query")

    def __init__(self, query: StandingQuery, namespace: str, item: Filter, *, by_images: bool) -> None:
        self.query = query
        self.namespace = namespace
        self.filter = item
        self.members: set[int] | None = None if by_images else set()
        self.most = 0


class StandingQuery:
    """fixed: bytes that it is taken to cost, without its members."""

    __slots__ = ("expires_at_ms", "fixed", "query_id", "sides", "token")

    def __init__(self, query_id: str, token: str, expires_at_ms: int) -> None:
        self.query_id = query_id
        self.token = token
        self.expires_at_ms = expires_at_ms
        self.fixed = 0
        self.sides: list[Side] = []


class Weight:
    """bytes: what all standing queries of a node are taken to cost (see memory_estimates.py)."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class StandingSides:
    """Those of one namespace.

    members: record hash -> sides that hold the record.
    by_images: sides that hold none.

    unindexed: how many of them every write tries.
    """

    __slots__ = ("by_images", "found", "members", "sides", "unindexed", "weight")

    def __init__(self, found: dict[StandingQuery, None], weight: Weight) -> None:
        self.sides: dict[Side, None] = {}
        self.members: dict[int, Side | CompactSet[Side]] = {}
        self.by_images: dict[Side, None] = {}
        self.unindexed = 0
        self.found = found
        self.weight = weight

    def note(self, entry: Retained, matched: Iterable[Filter], verdicts: Verdicts, index: QueryIndex) -> None:
        """Add the queries that this write concerns to `found`.

        matched: the filters that hold after it.
        """
        identity = entry.identity
        now = {side: None for item in matched for side in things(item.standing)}
        for side in list(things(self.members.get(identity))):
            self.found[side.query] = None
            if side not in now:
                self.drop(side, identity)
        for side in now:
            self.found[side.query] = None
            self.put(side, identity)
        if self.by_images:
            self._before(entry, verdicts, index)

    def put(self, side: Side, identity: int) -> None:
        """The side holds this record. Does nothing by before-images."""
        if side.members is not None and identity not in side.members:
            side.members.add(identity)
            self.weight.bytes += STANDING_MEMBER
            self.members[identity] = added(self.members.get(identity), side)

    def drop(self, side: Side, identity: int) -> None:
        """It does not hold it any more."""
        if side.members is None or identity not in side.members:
            return
        side.members.discard(identity)
        self.weight.bytes -= STANDING_MEMBER
        slot = removed(self.members.get(identity), side)
        if slot is None:
            self.members.pop(identity, None)
        else:
            self.members[identity] = slot

    def _before(self, entry: Retained, verdicts: Verdicts, index: QueryIndex) -> None:
        image = entry.image
        if not image.before_known:
            self.found.update((side.query, None) for side in self.by_images)
        elif image.before is not None:
            for item in dict.fromkeys(index.candidates(image.before)):
                for side in things(item.standing):
                    if side.members is None and verdicts.then(item):
                        self.found[side.query] = None


class StandingQueries:
    """The standing queries of a node. Shares its namespaces, its retention and its predicates. Not thread-safe."""

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
        """max_bytes: as memory_estimates.py reckons. What is new and would be too much is refused; members that writes
        add are let in.
        """
        self._namespaces = namespaces
        self._retention = retention
        self._predicates = predicates
        self._tally = tally
        self._max_queries = max_queries
        self._max_unindexed = max_unindexed
        self._max_bytes = max_bytes
        self._weight = Weight()
        self._queries: dict[str, StandingQuery] = {}
        self._found: dict[StandingQuery, None] = {}

    def __len__(self) -> int:
        return len(self._queries)

    @property
    def held_bytes(self) -> int:
        """What they are taken to cost."""
        return self._weight.bytes

    def take(self) -> tuple[str, ...]:
        """The queries that the writes since the last call concern; after each write there are those of that write."""
        if not self._found:
            return ()
        found = tuple(query.query_id for query in self._found)
        self._found.clear()
        return found

    def crowded(self, query_ids: Iterable[str]) -> Iterator[StandingQuery]:
        """Those whose membership has outgrown what was announced: it should be announced anew."""
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
        memory: Memory,
        version: Version,
        members: list[bytes] | None,
        expires_at_ms: int,
    ) -> list[AfterImage]:
        """Match this query from now on.

        members: this cell's share for each side (see sides.shares).

        Returns the retained images newer than `version` that concern it, oldest first. An announcement of the same query
        replaces the one before. Raises StandingError; then the query is not matched, nor is the one before.
        O(size of query and members + writes replayed).
        """
        again = query_id in self._queries
        self.end(query_id)
        floor = self._retention.floor
        if floor is None:
            raise StandingError("this cell has not seen any write or tick yet", final=False)
        if version < floor:
            raise StandingError(f"read at {version}, but writes are only retained after {floor}", final=False)
        if len(self._queries) >= self._max_queries:
            raise StandingError(f"this cell holds its {self._max_queries} standing queries already", final=True)
        plans = sides_of(plan_maintenance(query, memory))
        if members is not None and len(members) != len(plans):
            raise StandingError(f"announced with {len(members)} sides, it has {len(plans)}", final=True)
        for plan in plans:
            own = self._namespaces.get(plan.namespace)
            sides = None if own is None else own.standing
            if not plan.access and sides is not None and sides.unindexed >= self._max_unindexed:
                reason = f"every write tries {self._max_unindexed} standing queries without an index already"
                raise StandingError(reason, final=True)
        shares = [None if members is None else hashes(members[place]) for place in range(len(plans))]
        fixed = sum(
            standing_bytes(len(bson.encode(plan.condition, codec_options=OPTIONS)), plan.access) for plan in plans
        )
        size = fixed + sum(STANDING_MEMBER * len(share) for share in shares if share is not None)
        if not again and self.held_bytes + size > self._max_bytes:
            raise StandingError(
                f"it takes {size} bytes here, and {self.held_bytes} of {self._max_bytes} that this cell keeps for standing "
                "queries are taken: narrow the query, or add write or query partitions",
                final=True,
            )
        standing = self._queries[query_id] = StandingQuery(query_id, token, expires_at_ms)
        standing.fixed = fixed
        self._weight.bytes += fixed
        try:
            for plan, share in zip(plans, shares, strict=True):
                standing.sides.append(self._open(standing, plan, share))
        except Exception:
            self.end(query_id)
            raise
        namespaces = list(dict.fromkeys(plan.namespace for plan in plans))
        newer = self._retention.newer_than(version, namespaces)
        return [entry.raw for entry in newer if self._replayed(standing, entry)]

    def keep(self, query_id: str, token: str, expires_at_ms: int) -> bool:
        """Prolong its lease. False: it is not matched, or not as announced by this token."""
        query = self._queries.get(query_id)
        if query is None or query.token != token:
            return False
        query.expires_at_ms = max(query.expires_at_ms, expires_at_ms)
        return True

    def end(self, query_id: str) -> None:
        """Stop matching it; unknown ones are ignored. O(its members)."""
        query = self._queries.pop(query_id, None)
        if query is None:
            return
        self._found.pop(query, None)
        self._weight.bytes -= query.fixed
        for side in query.sides:
            self._close(side)

    def expire(self, now_ms: int) -> None:
        """Forget queries whose lease is over: their stage is gone. O(queries)."""
        for query_id in [query.query_id for query in self._queries.values() if query.expires_at_ms <= now_ms]:
            self.end(query_id)

    def _open(self, query: StandingQuery, plan: SidePlan, members: Sequence[int] | None) -> Side:
        namespace = self._namespaces.get(plan.namespace)
        if namespace is None:
            namespace = self._namespaces[plan.namespace] = Namespace()
        if namespace.standing is None:
            namespace.standing = StandingSides(self._found, self._weight)
        identity = plan.predicate.identity
        item = namespace.filters.get(identity)
        if item is None:
            item = Filter(identity, bson.encode(plan.condition, codec_options=OPTIONS))
            namespace.index.add(item, plan.access)
            if item.access is None:
                item.matches = plan.predicate.matches
            namespace.filters[identity] = item
        side = Side(query, plan.namespace, item, by_images=members is None)
        item.standing = added(item.standing, side)
        sides = namespace.standing
        sides.sides[side] = None
        sides.unindexed += item.access is None
        if members is None:
            sides.by_images[side] = None
        else:
            side.most = 2 * len(members) + _ROOM
            for member in members:
                sides.put(side, member)
        return side

    def _close(self, side: Side) -> None:
        namespace = self._namespaces[side.namespace]
        sides, item = namespace.standing, side.filter
        if sides is None:
            return
        for member in list(side.members or ()):
            sides.drop(side, member)
        sides.by_images.pop(side, None)
        sides.sides.pop(side, None)
        sides.unindexed -= item.access is None
        item.standing = removed(item.standing, side)
        namespace.release(item)
        if not sides.sides:
            namespace.standing = None
        if namespace.empty:
            del self._namespaces[side.namespace]

    def _replayed(self, query: StandingQuery, entry: Retained) -> bool:
        """Whether a retained write concerns the query; its membership follows it."""
        image = entry.raw
        if image.kind is WriteKind.COLLECTION:
            return any(covers(image.namespace, side.namespace) for side in query.sides)
        sides = [side for side in query.sides if side.namespace == image.namespace]
        if not sides:
            return False
        verdicts = Verdicts(entry.image, self._predicates, self._tally)
        concerned = False
        for side in sides:
            kept = self._namespaces[side.namespace].standing
            now = verdicts.now(side.filter)
            member = side.members is not None and entry.identity in side.members
            before = side.members is None and verdicts.then(side.filter) is not False
            concerned = concerned or now or member or before
            if kept is not None:
                (kept.put if now else kept.drop)(side, entry.identity)
        self._tally.tried += verdicts.tried
        return concerned
