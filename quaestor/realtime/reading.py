"""What a stage reads for one query: ordered in its own thread, read in another."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.incremental import (
    MaintainedResult,
    PriorState,
    RenewalSettings,
    bootstrap_queries,
    maintain,
    plan_maintenance,
)
from quaestor.model import Query, Version
from quaestor.realtime.snapshots import Snapshot, Snapshots


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadOrder:
    """memory, queries: as the result is maintained now, and what renews it; None if there is no result.

    at_least: what is read must contain every write up to it.
    recent: the version to read at, if that is enough; 0: the newest.
    trust_images: before-images may be relied on.
    """

    query_id: str
    query: Query
    at_least: Version
    recent: Version
    memory: PriorState | None
    queries: tuple[Query, ...]
    trust_images: bool
    settings: RenewalSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadDone:
    """maintained: built from what was read, if there was no result or it is to be kept in another way from now on."""

    order: ReadOrder
    snapshot: Snapshot
    maintained: MaintainedResult | None


def read(order: ReadOrder, snapshots: Snapshots) -> ReadDone:
    """Read, and build the result if there is none yet.

    Raises QueryError if the query cannot be maintained, DatabaseError if it could not be read.
    """
    memory = _memory(order, snapshots)
    if memory is order.memory:
        snapshot = snapshots.read(order.queries, at_least=order.at_least, recent=order.recent)
        return ReadDone(order=order, snapshot=snapshot, maintained=None)
    queries = bootstrap_queries(order.query, prior_state=memory, settings=order.settings)
    snapshot = snapshots.read(queries, at_least=order.at_least, recent=order.recent)
    maintained = maintain(
        order.query,
        initial=snapshot.own,
        version=snapshot.version,
        foreign=snapshot.foreign,
        prior_state=memory,
        settings=order.settings,
    )
    return ReadDone(order=order, snapshot=snapshot, maintained=maintained)


def _memory(order: ReadOrder, snapshots: Snapshots) -> PriorState:
    """By before-images where the collection records them, and what is shown can be kept without its records."""
    namespaces = plan_maintenance(order.query).namespaces
    own = order.query.namespace
    images = snapshots.images([own, *sorted(namespaces - {own})], at_least=order.at_least)
    if not (images and order.trust_images):
        return PriorState.MEMBERSHIP
    maintenance = plan_maintenance(order.query, PriorState.BEFORE_IMAGES)
    return maintenance.prior_state if maintenance.kept else PriorState.MEMBERSHIP
