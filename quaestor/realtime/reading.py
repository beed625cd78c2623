"""Reading of one query for a stage: requested in its own thread, performed in another."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.incremental import (
    FollowedResult,
    PriorState,
    RecomputedResult,
    RenewalSettings,
    bootstrap_queries,
    maintain,
    plan_following,
    plan_maintenance,
)
from quaestor.incremental.maintenance import Maintenance
from quaestor.model import Query, Version
from quaestor.realtime.snapshots import Snapshot, Snapshots


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadRequest:
    """Request to read a query's result from the database.

    memory, queries: as the result is maintained now, and what renews it; None if there is no result.
    at_least: what is read must contain every write up to it.
    recent: the version to read at, if that is enough; 0: the newest.
    trust_images: before-images may be relied on.
    exact: whether post-images are recorded must be known as of now.
    """

    query_id: str
    query: Query
    at_least: Version
    recent: Version
    memory: PriorState | None
    queries: tuple[Query, ...]
    trust_images: bool
    exact: bool
    settings: RenewalSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadResult:
    """Result of a read.

    maintained: built from what was read, if there was no result or it is to be kept in another way from now on.
    lacking: its collections without post-images.
    """

    request: ReadRequest
    snapshot: Snapshot
    maintained: FollowedResult | None
    lacking: tuple[str, ...]


def read(request: ReadRequest, snapshots: Snapshots) -> ReadResult:
    """Read what a request says, and build the result if there is none yet.

    Raises QueryError if the query cannot be maintained, DatabaseError if it could not be read.
    """
    maintenance = plan_following(request.query)
    own = request.query.namespace
    lacking = snapshots.lacking_images(
        [own, *sorted(maintenance.namespaces - {own})],
        at_least=request.at_least,
        anew=request.exact,
        collated=request.query.collation is not None,
    )
    if maintenance.recomputation is not None:
        return _recomputed(request, maintenance, snapshots)
    memory = _memory(request, images=own not in lacking)
    if memory is request.memory:
        snapshot = snapshots.read(request.queries, at_least=request.at_least, recent=request.recent)
        return ReadResult(request=request, snapshot=snapshot, maintained=None, lacking=lacking)
    queries = bootstrap_queries(request.query, prior_state=memory, settings=request.settings)
    snapshot = snapshots.read(queries, at_least=request.at_least, recent=request.recent)
    maintained = maintain(
        request.query,
        initial=snapshot.own,
        version=snapshot.version,
        foreign=snapshot.foreign,
        prior_state=memory,
        settings=request.settings,
    )
    return ReadResult(request=request, snapshot=snapshot, maintained=maintained, lacking=lacking)


def _recomputed(request: ReadRequest, maintenance: Maintenance, snapshots: Snapshots) -> ReadResult:
    snapshot = snapshots.read([maintenance.own], at_least=request.at_least, recent=request.recent)
    result = None
    if request.memory is None:
        result = RecomputedResult(maintenance, snapshot.own, snapshot.version, settings=request.settings)
    return ReadResult(request=request, snapshot=snapshot, maintained=result, lacking=())


def _memory(request: ReadRequest, *, images: bool) -> PriorState:
    """By before-images where the collection records them, and what is shown can be kept without its records."""
    if not (images and request.trust_images):
        return PriorState.MEMBERSHIP
    maintenance = plan_maintenance(request.query, PriorState.BEFORE_IMAGES)
    return maintenance.prior_state if maintenance.kept else PriorState.MEMBERSHIP
