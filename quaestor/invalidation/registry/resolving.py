"""Resolving of namespaces: views become queries on their collections, with facts that a query lacks about its collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from quaestor.model import CapturedRead, Query


class Resolver(Protocol):
    """Knowledge of namespaces: a collection, a view (rewritten onto its collection), a time-series collection."""

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]:
        """Return the reads to register, and the reasons (values of Uncacheable) against their registration."""

    def through_views(self, query: Query) -> Query:
        """Return a resolved query with its stages on collections instead of views."""


NOT_SERVING: Final = "not-serving"


class LateResolver:
    """Resolver for parts made before a database is watched: until connect() nothing is known, so nothing is registered.

    resolver: the resolver that knows the database; None before.
    """

    def __init__(self) -> None:
        self.resolver: Resolver | None = None

    def connect(self, resolver: Resolver) -> None:
        """Resolve reads by this resolver from now on. Called once, when a database is watched."""
        self.resolver = resolver

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]:
        """See Resolver."""
        if self.resolver is None:
            return ((), (NOT_SERVING,)) if reads else ((), ())
        return await self.resolver.resolve(reads)

    def through_views(self, query: Query) -> Query:
        """See Resolver."""
        return query if self.resolver is None else self.resolver.through_views(query)


class LenientResolver:
    """Resolver for subscriptions. A process that only follows results has no client; its reads are then taken as they are."""

    def __init__(self, late: LateResolver) -> None:
        self._late = late

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]:
        """See Resolver."""
        if self._late.resolver is None:
            return tuple(reads), ()
        return await self._late.resolver.resolve(reads)

    def through_views(self, query: Query) -> Query:
        """See Resolver."""
        return self._late.through_views(query)
