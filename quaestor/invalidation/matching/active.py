"""Active queries of a node, by namespace and by tenant, with the indexes that each namespace keeps of them."""

from __future__ import annotations

from collections.abc import Iterator

from quaestor.invalidation.matching.clock_watches import ClockWatches
from quaestor.invalidation.matching.compact_set import added, elements, removed
from quaestor.invalidation.matching.contributors import Supplied
from quaestor.invalidation.matching.entities import ActiveQuery, LiveRegistration
from quaestor.invalidation.matching.memory_estimates import query_bytes, registration_bytes
from quaestor.invalidation.matching.namespace import Namespace, judged
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.retention import Retained
from quaestor.invalidation.matching.tally import Tally
from quaestor.invalidation.matching.tenants import Tenants
from quaestor.model import AfterImage, MatchType, Query, WriteKind
from quaestor.namespaces import covers
from quaestor.planning.index_order import first_fields_that_differ, may_find_by
from quaestor.planning.plan import QueryPlan
from quaestor.planning.plan_cache import plan_of
from quaestor.planning.rules import Rules, SharedRules


class ActiveQueries:
    """Active queries with their registrations, by namespace and by tenant. Not thread-safe.

    Incremental: a query without registrations leaves nothing behind.

    watches: of the registrations whose query follows the clock.
    """

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        self.tenants = Tenants()
        self._rules = SharedRules()
        self.watches = ClockWatches(lambda query, size: self.tenants.charge(query, size, 0))

    def __len__(self) -> int:
        return self.tenants.queries

    def prepare(self, query_id: str, query: Query, *, tenant: str, now_s: int) -> tuple[ActiveQuery, QueryPlan | None]:
        """Return the tenant's active query with this id, or a new one with its plan. Pass both to `add` with a registration.

        Raises QueryError. O(size of the query); O(1) if the query is known.
        """
        account = self.tenants.get(tenant)
        known = account.queries.get(query_id)
        if known is not None:
            return known, None
        # An app in this process has just made the plan. A plan cached here would count in no budget of the node.
        plan = plan_of(query, keep=False)
        return ActiveQuery(query_id, self._rules.of(plan), account, born_s=now_s), plan

    def add(self, live: LiveRegistration, plan: QueryPlan | None) -> None:
        """Match this registration from now on. plan: as `prepare` returned it."""
        query = live.query
        if plan is not None:
            self._open(query, plan)
        query.registrations = added(query.registrations, live)
        self.namespaces[query.rules.namespace].add(live)
        self.tenants.charge(query, registration_bytes(live), 1)

    def supply(self, live: LiveRegistration, known: Supplied) -> None:
        """Judge a registration by its contributors from now on. O(contributors)."""
        namespace = self.namespaces[live.query.rules.namespace]
        namespace.remove(live)
        before = registration_bytes(live)
        if known.members is not None:
            live.members = known.members
        live.boundary = known.boundary if live.boundary is None else live.boundary
        live.kept = known.kept
        live.needs_before = known.members is None
        namespace.add(live)
        if not any(element.needs_before for element in elements(live.query.registrations)):
            namespace.unremembered.pop(live.query, None)
            namespace.unremembered_by_id.pop(live.query, None)
        self.tenants.charge(live.query, registration_bytes(live) - before, 0)

    def forget(self, live: LiveRegistration) -> None:
        """Stop matching this registration. O(its members)."""
        query = live.query
        if self.watches.by_live:
            self.watches.remove(live)
        query.registrations = removed(query.registrations, live)
        self.namespaces[query.rules.namespace].remove(live)
        self.tenants.charge(query, -registration_bytes(live), -1)
        if query.registrations is None:
            self.tenants.charge(query, -query.bytes, 0)
            self.tenants.closed(query)
            for name in query.rules.namespaces:
                self._close(name, query)

    def concerned(self, event: AfterImage) -> Iterator[LiveRegistration]:
        """Return the registrations that a collection event concerns. O(queries)."""
        for tenant in self.tenants.all():
            for query in tenant.queries.values():
                if concerns(query.rules, event):
                    yield from elements(query.registrations)

    def replayed(
        self, live: LiveRegistration, entry: Retained, predicates: Predicates, tally: Tally
    ) -> MatchType | None:
        """Return the change that one retained event makes to one registration, or None."""
        image, rules = entry.image, live.query.rules
        if image.kind is WriteKind.COLLECTION:
            return MatchType.MATCH if concerns(rules, image) else None
        namespace = self.namespaces.get(image.namespace)
        if namespace is not None and namespace.foreign.changes(live.query, image):
            return MatchType.MATCH
        return judged(live, entry, predicates, tally) if image.namespace == rules.namespace else None

    def _open(self, query: ActiveQuery, plan: QueryPlan) -> None:
        own = self.namespaces.get(query.rules.namespace) or Namespace()
        own.open(query, plan)  # this may raise; nothing has changed until then
        self.namespaces[query.rules.namespace] = own
        self.tenants.opened(query)
        self.tenants.charge(query, query_bytes(query), 0)
        for read in plan.foreign_reads:
            self.namespaces.setdefault(read.namespace, Namespace()).foreign.add(query, read)

    def _close(self, name: str, query: ActiveQuery) -> None:
        namespace = self.namespaces[name]
        if name == query.rules.namespace:
            namespace.close(query)
        namespace.foreign.remove(query)
        if namespace.empty:
            del self.namespaces[name]


def concerns(rules: Rules, event: AfterImage) -> bool:
    """Whether a collection event concerns a query. The event's namespace is "db.coll", "db" or "db.*" for a database, or "*".

    A change of indexes concerns queries that may use one of them, and queries planned without them.
    """
    if not any(covers(event.namespace, namespace) for namespace in rules.namespaces):
        return False
    if not event.of_indexes:
        return True
    own = covers(event.namespace, rules.namespace)
    if event.changed and (not own or may_find_by(event.changed, rules.index_order.found_by)):
        return True
    listed = None if event.after is None or not own or not rules.index_order.is_open else event.after["index_keys"]
    return listed is not None and may_find_by(
        first_fields_that_differ(rules.index_keys, listed), rules.index_order.found_by
    )
