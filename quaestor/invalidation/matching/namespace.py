"""All that a node keeps for one namespace, and how a write finds the registrations that it changes.

Three ways lead from a write to registrations: the members (the record is in a result), the index asked with the image
after the write, and, for results whose members are not known, the index asked with the image before it. Where that is
unknown too, every such result of the namespace is concerned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import bson

from quaestor.event_layer.partitioning import OPTIONS
from quaestor.invalidation.matching.change import first_change
from quaestor.invalidation.matching.compact_set import CompactSet, added, removed, size, things
from quaestor.invalidation.matching.entities import ActiveQuery, Filter, Live
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.invalidation.matching.pool import Pool
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.retention import Retained
from quaestor.invalidation.matching.tenants import Tenant
from quaestor.invalidation.matching.verdicts import Tally, Verdicts
from quaestor.invalidation.matching.work import SAMPLED
from quaestor.model import MatchType
from quaestor.planning.plan import QueryPlan

if TYPE_CHECKING:
    from quaestor.invalidation.matching.subscription_matching import StandingSides

Changes = dict[Live, MatchType]

_FEW: Final = 8
"""Once a predicate has so few queries left it is seen to whose they are: a dictionary that shrinks finds its first entry
slowly."""


@dataclass(slots=True, eq=False)
class Namespace:
    """Incremental; not thread-safe.

    filters: by identity.
    members: record hash -> registrations whose result holds it.
    unremembered: queries with registrations that need to know how the record was before.
    always: queries that every write changes.
    foreign: those of other namespaces whose pipeline reads this one.
    standing: what standing queries keep here, if there are any.
    unindexed: the filters that every write tries for the sake of cached results, by who brought them.
    unindexed_filters: how many.
    tried, epoch: how often it is written, see work.py.
    """

    index: QueryIndex = field(default_factory=QueryIndex)
    filters: dict[bytes, Filter] = field(default_factory=dict)
    members: dict[int, Live | CompactSet[Live]] = field(default_factory=dict)
    unremembered: dict[ActiveQuery, None] = field(default_factory=dict)
    always: dict[ActiveQuery, None] = field(default_factory=dict)
    foreign: dict[ActiveQuery, None] = field(default_factory=dict)
    unindexed: dict[Tenant, Pool[Filter]] = field(default_factory=dict)
    unindexed_filters: int = 0
    tried: int = 0
    epoch: int = 0
    standing: StandingSides | None = None

    @property
    def empty(self) -> bool:
        return not (self.filters or self.always or self.foreign or self.standing)

    def open(self, query: ActiveQuery, plan: QueryPlan) -> None:
        """A query has come; it gets the filter that all queries with its predicate share, if it has a predicate."""
        if plan.predicate is None:
            self.always[query] = None
            return
        identity = plan.predicate.identity
        item = self.filters.get(identity)
        if item is None:
            item = Filter(identity, bson.encode(plan.condition or {}, codec_options=OPTIONS))
            self.index.add(item, plan.access)
            if item.access is None:
                item.matches = plan.predicate.matches
            self.filters[identity] = item
        if item.tenant is None:
            self._give(item, query.tenant)
        item.queries = added(item.queries, query)
        query.filter = item

    def close(self, query: ActiveQuery) -> None:
        """A query of this or another namespace has lost its last registration."""
        if query in self.foreign:
            del self.foreign[query]
            return
        self.unremembered.pop(query, None)
        self.always.pop(query, None)
        if query.filter is None:
            return
        item = query.filter
        item.queries = removed(item.queries, query)
        if item.queries is None:
            self._take(item)
            self.release(item)
        elif item.tenant is query.tenant and size(item.queries) <= _FEW:
            heir = next(iter(things(item.queries))).tenant
            if heir is not query.tenant:
                self._take(item)
                self._give(item, heir)

    def release(self, item: Filter) -> None:
        """Forget a filter that no query uses any more."""
        if item.queries is None and item.standing is None:
            self.index.remove(item)
            del self.filters[item.identity]

    def _give(self, item: Filter, tenant: Tenant) -> None:
        """The filter is on this tenant's account from now on."""
        item.tenant = tenant
        if item.access is None:
            pool = self.unindexed.get(tenant)
            if pool is None:
                pool = self.unindexed[tenant] = tenant.unindexed[self] = Pool()
            pool.add(item)
            self.unindexed_filters += 1

    def _take(self, item: Filter) -> None:
        tenant, item.tenant = item.tenant, None
        if item.access is None and tenant is not None:
            pool = self.unindexed[tenant]
            pool.remove(item)
            self.unindexed_filters -= 1
            if not pool:
                del self.unindexed[tenant], tenant.unindexed[self]

    def add(self, live: Live) -> None:
        """A registration has come, of a query that is open."""
        for member in live.members or ():
            self.members[member] = added(self.members.get(member), live)
        if live.needs_before:
            self.unremembered[live.query] = None

    def remove(self, live: Live) -> None:
        for member in live.members or ():
            slot = removed(self.members.get(member), live)
            if slot is None:
                self.members.pop(member, None)
            else:
                self.members[member] = slot

    def changed_by(self, entry: Retained, predicates: Predicates, tally: Tally) -> Changes:
        """The registrations whose results this write changes, each with how."""
        image = entry.image
        verdicts = Verdicts(image, predicates, tally)
        changes: Changes = {}
        members = dict.fromkeys(things(self.members.get(entry.identity)))
        for live in members:
            _judge(live, entry, True, verdicts, changes)
        matched: list[Filter] = []
        if image.after is not None:
            matched = verdicts.matching(self.index.candidates(image.after))
            for item in matched:
                for live in _lives(item):
                    if live not in members:
                        _judge(live, entry, False, verdicts, changes)
        if self.unremembered:
            for live in self._concerned_before(entry, verdicts):
                if live.needs_before and live not in members:
                    _judge(live, entry, False, verdicts, changes)
        for query in self.always:
            for live in things(query.registrations):
                _judge(live, entry, False, verdicts, changes)
        for query in self.foreign:
            changes.update(
                (live, MatchType.MATCH) for live in things(query.registrations) if image.version > live.since
            )
        if self.standing is not None:
            self.standing.note(entry, matched, verdicts, self.index)
        tally.tried += verdicts.tried
        tally.tried_last = verdicts.tried
        if not tally.writes % SAMPLED:
            tally.work.count(self, SAMPLED)
            tally.work.count_trials(verdicts.asked)
        return changes

    def _concerned_before(self, entry: Retained, verdicts: Verdicts) -> Iterator[Live]:
        """Registrations without remembered members whose result the record may have been in before the write."""
        image = entry.image
        if not image.before_known:
            for query in self.unremembered:
                yield from things(query.registrations)
        elif image.before is not None:
            for item in dict.fromkeys(self.index.candidates(image.before)):
                if any(query in self.unremembered for query in things(item.queries)) and verdicts.then(item):
                    yield from _lives(item)


def judged(live: Live, entry: Retained, predicates: Predicates, tally: Tally) -> MatchType | None:
    """What one retained write means for one registration: replay."""
    changes: Changes = {}
    member = live.members is not None and entry.identity in live.members
    verdicts = Verdicts(entry.image, predicates, tally)
    _judge(live, entry, member, verdicts, changes)
    tally.tried += verdicts.tried
    return changes.get(live)


def _lives(item: Filter) -> Iterator[Live]:
    for query in things(item.queries):
        yield from things(query.registrations)


def _judge(live: Live, entry: Retained, member: bool, verdicts: Verdicts, changes: Changes) -> None:
    if live in changes or entry.image.version <= live.since:
        return
    item = live.query.filter
    try:
        change = first_change(
            live,
            entry.image,
            member=member,
            now=item is not None and verdicts.now(item),
            before=None if item is None or not live.needs_before else verdicts.then(item),
        )
    except Exception:
        verdicts.failed()
        change = MatchType.MATCH
    if item in verdicts.failing:
        change = MatchType.MATCH
    if change is not None:
        changes[live] = change
