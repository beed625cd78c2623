"""Notifications of a matching node about the registrations that it forgets."""

from __future__ import annotations

from collections.abc import Iterable

from quaestor.invalidation.matching.certainty import is_certain
from quaestor.invalidation.matching.entities import LiveRegistration
from quaestor.invalidation.matching.namespace import Changes
from quaestor.model import AfterImage, Cell, Invalidated, MatchType, WriteKind

_NOT_JUDGED = (WriteKind.COLLECTION, WriteKind.GAP)
"""Events that invalidate all results of a namespace, independent of their predicates."""


def invalidations(changes: Changes, image: AfterImage, cell: Cell) -> list[Invalidated]:
    """Return the notifications of one event: one for each query, match type and certainty.

    changes: the registrations whose results the event changes, each with its match type.
    """
    judged_by_query = image.kind not in _NOT_JUDGED
    grouped: dict[tuple[str, MatchType, bool, bool], list[str]] = {}
    for live, change in changes.items():
        exact = judged_by_query and live.query.rules.exact
        certain = exact and is_certain(live, image, change)
        grouped.setdefault((live.query.query_id, change, exact, certain), []).append(live.id)
    return [
        Invalidated(
            registration_ids=tuple(ids),
            query_id=query_id,
            match_type=change,
            version=image.version,
            key=image.key,
            written_at_ms=image.wall_ms,
            source=cell,
            exact=exact,
            certain=certain,
        )
        for (query_id, change, exact, certain), ids in grouped.items()
    ]


def due_notifications(lives: Iterable[LiveRegistration], cell: Cell, *, now_ms: int) -> list[Invalidated]:
    """Return the notifications of results that the clock has changed: one for each query."""
    by_query: dict[str, list[str]] = {}
    for live in lives:
        by_query.setdefault(live.query.query_id, []).append(live.id)
    return [
        Invalidated(
            registration_ids=tuple(ids),
            query_id=query_id,
            match_type=MatchType.DUE,
            version=0,
            key=None,
            written_at_ms=now_ms,
            source=cell,
            exact=True,
            certain=True,
        )
        for query_id, ids in by_query.items()
    ]


def eviction_notification(query_id: str, lives: Iterable[LiveRegistration], cell: Cell, *, now_ms: int) -> Invalidated:
    """Return the notification that these registrations are no longer guarded, although no write changed them."""
    return Invalidated(
        registration_ids=tuple(live.id for live in lives),
        query_id=query_id,
        match_type=MatchType.EVICTED,
        version=0,
        key=None,
        written_at_ms=now_ms,
        source=cell,
    )
