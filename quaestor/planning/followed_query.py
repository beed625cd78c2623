"""Followed queries: what a subscription adds to a query, where the query was made from one on views."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from quaestor.model import Document, Operation, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedQuery(Query):
    """Query of a subscription.

    views: views that stages read, each as `{view, reads, definition}`. Writes to the collections in `reads` count, and
        `definition` is the identity of the view's definition.
    stands_for: count or distinct, if the pipeline was made from one on a view; the rows then have its form.
    """

    views: tuple[Document, ...] = ()
    stands_for: Operation | None = None


def followed(query: Query, **changes: Any) -> FollowedQuery:
    """Return the followed query with the fields of a query and these changes."""
    return FollowedQuery(**{field.name: getattr(query, field.name) for field in fields(query)} | changes)


def views_of(query: Query) -> tuple[Document, ...]:
    """Return the views that stages of a query read, see FollowedQuery."""
    return query.views if isinstance(query, FollowedQuery) else ()


def stands_for(query: Query) -> Operation | None:
    """Return the operation on a view that a query stands for, see FollowedQuery."""
    return query.stands_for if isinstance(query, FollowedQuery) else None
