"""Namespace of a node: its queries, with filters and members, and the search for registrations that a write changes.

Three ways lead from a write to registrations. The members lead to results that hold the record. The index, searched with the
image after the write, leads to results that it enters. For results with unknown members the index is searched with the image
before the write too. If that image is unknown, the write concerns every such result of the namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import bson

from quaestor.invalidation.matching.change import first_change
from quaestor.invalidation.matching.compact_set import CompactSet, added, elements, removed, size
from quaestor.invalidation.matching.entities import ActiveQuery, Filter, LiveRegistration, Tenant
from quaestor.invalidation.matching.foreign_sides import ForeignSides
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.invalidation.matching.predicate_results import PredicateResults
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.retention import Retained
from quaestor.invalidation.matching.sampling_set import SamplingSet
from quaestor.invalidation.matching.subscribed_sides import SubscribedSides
from quaestor.invalidation.matching.tally import Tally
from quaestor.invalidation.matching.trial_rates import SAMPLED
from quaestor.model import Document, MatchType
from quaestor.planning.access_entries import Access
from quaestor.planning.plan import QueryPlan
from quaestor.query.compiled import CompiledQuery
from quaestor.query.encoding import OPTIONS

Changes = dict[LiveRegistration, MatchType]
"""Registrations whose result a write changes, each with the match type of its change."""

_FEW: Final = 8
"""Number of remaining queries from which a predicate's tenant is checked: a shrunken dictionary finds its first entry slowly."""


@dataclass(slots=True, eq=False)
class Namespace:
    """All content of a node for one namespace. Incremental; not thread-safe.

    index: index of the filters.
    filters: filters by identity.
    members: registrations whose result holds a record, by record hash.
    unremembered: queries with registrations that need to know whether the record matched before.
    unremembered_by_id: the same, for queries whose filter names the `_id`s of all records that it can match.
    always: queries that every write changes.
    foreign: reads of pipelines in this namespace besides their own records.
    unindexed: filters that nearly every write tries for cached results, by the tenant that brought them.
    unindexed_filters: number of these filters.
    tried, epoch: rate of writes to the namespace, see trial_rates.py.
    subscribed: sides of subscribed queries, if there are any.
    """

    index: QueryIndex = field(default_factory=QueryIndex)
    filters: dict[bytes, Filter] = field(default_factory=dict)
    members: dict[int, LiveRegistration | CompactSet[LiveRegistration]] = field(default_factory=dict)
    unremembered: dict[ActiveQuery, None] = field(default_factory=dict)
    unremembered_by_id: dict[ActiveQuery, None] = field(default_factory=dict)
    always: dict[ActiveQuery, None] = field(default_factory=dict)
    foreign: ForeignSides = field(default_factory=ForeignSides)
    unindexed: dict[Tenant, SamplingSet[Filter]] = field(default_factory=dict)
    unindexed_filters: int = 0
    tried: int = 0
    epoch: int = 0
    subscribed: SubscribedSides | None = None

    @property
    def empty(self) -> bool:
        """Whether the namespace holds nothing, so that it can be forgotten."""
        return not (self.filters or self.always or self.foreign or self.subscribed)

    def open(self, query: ActiveQuery, plan: QueryPlan) -> None:
        """Match a new query from now on, by the filter that all queries with its predicate share, if it has one."""
        if plan.predicate is None:
            self.always[query] = None
            return
        item = self.shared_filter(plan.predicate, plan.condition or {}, plan.access)
        if item.tenant is None:
            self._charge(item, query.tenant)
        item.queries = added(item.queries, query)
        query.filter = item

    def shared_filter(self, predicate: CompiledQuery, condition: Document, access: tuple[Access, ...]) -> Filter:
        """Return the filter with this predicate, a new one if it is unknown. Pass it to `release` when it is no longer used.

        condition: the predicate as a document.
        access: access paths of the predicate, best first.
        """
        item = self.filters.get(predicate.identity)
        if item is None:
            item = Filter(predicate.identity, bson.encode(condition, codec_options=OPTIONS))
            self.index.add(item, access)
            self.filters[predicate.identity] = item
        return item

    def close(self, query: ActiveQuery) -> None:
        """Stop matching a query of this namespace that has lost its last registration."""
        self.unremembered.pop(query, None)
        self.unremembered_by_id.pop(query, None)
        self.always.pop(query, None)
        if query.filter is None:
            return
        item = query.filter
        item.queries = removed(item.queries, query)
        if item.queries is None:
            self._discharge(item)
            self.release(item)
        elif item.tenant is query.tenant and size(item.queries) <= _FEW:
            other = next(iter(elements(item.queries))).tenant
            if other is not query.tenant:
                self._discharge(item)
                self._charge(item, other)

    def release(self, item: Filter) -> None:
        """Forget the filter if no query uses it any more."""
        if item.queries is None and item.sides is None:
            self.index.remove(item)
            del self.filters[item.identity]

    def _charge(self, item: Filter, tenant: Tenant) -> None:
        """Put the filter on the account of this tenant."""
        item.tenant = tenant
        if item.broad:
            filters = self.unindexed.get(tenant)
            if filters is None:
                filters = self.unindexed[tenant] = tenant.unindexed[self] = SamplingSet()
            filters.add(item)
            self.unindexed_filters += 1

    def _discharge(self, item: Filter) -> None:
        """Take the filter off its account."""
        tenant, item.tenant = item.tenant, None
        if item.broad and tenant is not None:
            filters = self.unindexed[tenant]
            filters.remove(item)
            self.unindexed_filters -= 1
            if not filters:
                del self.unindexed[tenant], tenant.unindexed[self]

    def add(self, live: LiveRegistration) -> None:
        """Match a registration of an open query from now on."""
        for member in live.members or ():
            self.members[member] = added(self.members.get(member), live)
        if live.needs_before:
            item = live.query.filter
            by_id = item is not None and item.by_id
            (self.unremembered_by_id if by_id else self.unremembered)[live.query] = None

    def remove(self, live: LiveRegistration) -> None:
        """Stop matching a registration. O(its members)."""
        for member in live.members or ():
            slot = removed(self.members.get(member), live)
            if slot is None:
                self.members.pop(member, None)
            else:
                self.members[member] = slot

    def changed_by(self, entry: Retained, predicates: Predicates, tally: Tally, *, early: bool = False) -> Changes:
        """Return the registrations whose results this write changes, each with its match type.

        early: the write arrives ahead of others. Subscribed queries follow writes in order, so they do not see the write yet.
        """
        image = entry.image
        results = PredicateResults(image, predicates, tally)
        changes: Changes = {}
        members = dict.fromkeys(elements(self.members.get(entry.identity)))
        for live in members:
            _judge(live, entry, True, results, changes)
        matched: list[Filter] = []
        if image.after is not None:
            matched = results.matching(self.index.candidates(image.after))
            for item in matched:
                for live in _lives(item):
                    if live not in members:
                        _judge(live, entry, False, results, changes)
        if self.unremembered or self.unremembered_by_id:
            for live in self._concerned_before(entry, results):
                if live.needs_before and live not in members:
                    _judge(live, entry, False, results, changes)
        for query in self.always:
            for live in elements(query.registrations):
                _judge(live, entry, False, results, changes)
        for query in self.foreign.changed_by(image) if self.foreign else ():
            changes.update(
                (live, MatchType.MATCH)
                for live in elements(query.registrations)
                if live not in changes and image.version > live.since
            )
        if self.subscribed is not None and not early:
            self.subscribed.process(entry, matched, results, self.index)
        tally.tried += results.tried
        tally.tried_last = results.tried
        if not tally.writes % SAMPLED:
            tally.trial_rates.count(self, SAMPLED)
            tally.trial_rates.count_trials(results.evaluated)
        return changes

    def _concerned_before(self, entry: Retained, results: PredicateResults) -> Iterator[LiveRegistration]:
        """Yield registrations with unknown members whose result may have held the record before the write."""
        image = entry.image
        if self.unremembered_by_id:
            for item in self.index.naming(image.key):
                yield from _lives(item)
        if not image.before_known:
            for query in self.unremembered:
                yield from elements(query.registrations)
        elif image.before is not None:
            for item in dict.fromkeys(self.index.candidates(image.before)):
                if any(query in self.unremembered for query in elements(item.queries)) and results.matched_before(item):
                    yield from _lives(item)


def judged(live: LiveRegistration, entry: Retained, predicates: Predicates, tally: Tally) -> MatchType | None:
    """Return the change that one retained write makes to one registration, or None: replay."""
    changes: Changes = {}
    member = live.members is not None and entry.identity in live.members
    results = PredicateResults(entry.image, predicates, tally)
    _judge(live, entry, member, results, changes)
    tally.tried += results.tried
    return changes.get(live)


def _lives(item: Filter) -> Iterator[LiveRegistration]:
    for query in elements(item.queries):
        yield from elements(query.registrations)


def _judge(live: LiveRegistration, entry: Retained, member: bool, results: PredicateResults, changes: Changes) -> None:
    if live in changes or entry.image.version <= live.since:
        return
    item = live.query.filter
    try:
        change = first_change(
            live,
            entry.image,
            member=member,
            after=item is not None and results.matches_now(item),
            before=None if item is None or not live.needs_before else results.matched_before(item),
            identity=entry.identity,
        )
    except Exception:
        results.comparison_failed()
        change = MatchType.MATCH
    if item in results.failing:
        change = MatchType.MATCH
    if change is not None:
        changes[live] = change
