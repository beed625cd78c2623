"""Registrations built from captured reads: exactly the facts about a result that the matching nodes need. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quaestor.clock import ClockWatch
from quaestor.fast_init import fast_init
from quaestor.invalidation.registry.registration_ids import renewable, round_of
from quaestor.invalidation.registry.shared_registrations import SharedRegistrations
from quaestor.model import CapturedRead, Document, Query, Registration, Version
from quaestor.planning.plan import QueryPlan
from quaestor.planning.plan_cache import plan_of
from quaestor.planning.plan_parts import Result

SECONDARY_MARGIN_S = 2
"""Additional age of a read on a secondary, beside its duration. The operationTime of its replies is taken after the scan, and
batches are applied behind it."""


_MOST_KEPT = 1_000
"""Largest number of members of a result that is kept for renewal."""
_SPARE = 4
"""Registrations last a quarter longer than the first response needs, so that later ones can share them for some time."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Distinct query of a response, planned, with the read that answered it."""

    query: Query
    plan: QueryPlan
    read: CapturedRead

    @property
    def until_ms(self) -> int:
        """Instant at which a record changes its truth without a write; 0: none is known."""
        return 0 if self.read.clock is None else self.read.clock.until_ms


def dependencies(reads: Sequence[CapturedRead]) -> list[Dependency]:
    """Return the distinct queries behind these reads.

    A query that ran twice counts once, dated by its older read. The replay from the older read finds any write in between.
    If the runs differ in their members, there need not have been a write (limits without a sort, ties, single batches). The
    members then count as unknown, and any change of the matching records ends the result.
    """
    by_query: dict[str, Dependency] = {}
    for read in reads:
        plan = plan_of(read.query)
        dependency = Dependency(query=read.query, plan=plan, read=read)
        known = by_query.get(plan.query_id)
        by_query[plan.query_id] = dependency if known is None else _both(known, dependency)
    return list(by_query.values())


def _both(first: Dependency, other: Dependency) -> Dependency:
    older = other if other.read.read_at < first.read.read_at else first
    if older.read.clock is not None:
        until_ms = min((until_ms for each in (first, other) if (until_ms := each.until_ms)), default=0)
        older = replace(older, read=replace(older.read, clock=older.read.clock._replace(until_ms=until_ms)))
    if first.read.digest != other.read.digest:
        older = replace(older, read=replace(older.read, digest=None))
    if first.read.ids == other.read.ids:
        return older
    return replace(older, read=replace(older.read, ids=None, last=None))


@dataclass(slots=True)
class Guard:
    """Registrations that a response relies on.

    ids: ids that decide its validity; at first, the first one belongs to it alone.
    new: registrations among them to activate.
    shared: ids on which other responses rely already.
    rate_hz: summed write rate of the members of the shared ones.
    """

    ids: tuple[str, ...]
    new: list[Registration]
    shared: list[str]
    rate_hz: float


def recheckable(dependency: Dependency) -> bool:
    """Whether a result can be read again and compared when a write may have changed it.

    All of the query and of the result must be known. Only results whose comparison may be useful have digests.
    """
    read = dependency.read
    known = read.digest is not None and read.query.widened is None and read.primary and read.query.clock is None
    return known and len(read.ids or ()) <= _MOST_KEPT


def guarding(
    read_dependencies: Sequence[Dependency],
    shared: SharedRegistrations,
    *,
    new_id: Callable[[str], str],
    tenant: str,
    since: Version,
    now_ms: int,
    expires_at_ms: int,
    rechecked: bool = False,
) -> Guard:
    """Return the registrations that a response with these dependencies needs. Every shared one must be leased.

    new_id: makes an id for a query id.
    rechecked: make renewable registrations where possible.
    """
    guard = Guard((), [], [], 0.0)
    ids: list[str] = []
    for dependency in read_dependencies:
        reused = shared.reuse(
            dependency.plan.query_id,
            members=_members(dependency),
            since=since_of(dependency.read, since),
            expires_at_ms=expires_at_ms,
            digest=dependency.read.digest if rechecked and recheckable(dependency) else None,
        )
        if reused is not None:
            registration_id, rate_hz = reused
            guard.rate_hz += rate_hz
            guard.shared.append(registration_id)
        else:
            registration_id = new_id(dependency.plan.query_id)
            if rechecked and recheckable(dependency):
                registration_id = renewable(registration_id)
            new = registration(
                dependency,
                registration_id=registration_id,
                tenant=tenant,
                since=since,
                expires_at_ms=expires_at_ms + max(0, expires_at_ms - now_ms) // _SPARE,
            )
            guard.new.append(new)
        ids.append(registration_id)
    if guard.shared[:1] == ids[:1]:
        # No cell knows this id. Purges, evictions and kills by name use it to distinguish the response from its siblings.
        ids.insert(0, new_id(read_dependencies[0].plan.query_id))
    guard.ids = tuple(ids)
    return guard


def registration(
    dependency: Dependency, *, registration_id: str, tenant: str, since: Version, expires_at_ms: int
) -> Registration:
    """Return the registration of one dependency, as its captured read shows the result."""
    read = dependency.read
    members = _members(dependency)
    return Registration(
        id=registration_id,
        tenant=tenant,
        query_id=dependency.plan.query_id,
        query=dependency.query,
        since=since_of(read, since),
        read_at=read.read_at,
        members=members,
        last=None if members is None else _last(dependency.plan, len(members), read.last),
        expires_at_ms=expires_at_ms,
        digest=read.digest if round_of(registration_id) is not None else None,
        asked=read.asked,
        watch=_watch(read, since),
    )


def _watch(read: CapturedRead, since: Version) -> ClockWatch | None:
    if read.query.clock is None or read.clock is None:
        return None
    return ClockWatch(read.clock.from_ms, read.clock.until_ms, since_of(read, since))


def _members(dependency: Dependency) -> tuple[Any, ...] | None:
    return dependency.read.ids if dependency.plan.result is Result.RECORDS else None


def since_of(read: CapturedRead, since: Version) -> Version:
    """Return the version up to which every write was visible to the read.

    A primary whose reply is dated before `since` has been succeeded and does not know it yet, or was asked for majority reads.

    since: newest version reported before the read began.
    """
    return min(since, read.read_at if read.primary else _secondary_since(read))


def _secondary_since(read: CapturedRead) -> Version:
    seconds = (read.read_at >> 32) - int(read.duration_ms / 1000) - 1 - SECONDARY_MARGIN_S
    return max(0, seconds) << 32


def _last(plan: QueryPlan, members: int, last: Document | None) -> Document | None:
    """Return the last member of a full window, reduced to its order fields and _id."""
    limit = plan.query.limit
    if not plan.place.ordering or not limit or members < limit or last is None:
        return None
    fields = {path.split(".", 1)[0] for path in plan.place.ordering} | {"_id"}
    if not all(plan.shows(field) for field in fields - {"_id"}):
        return None
    return {field: last[field] for field in fields if field in last}
