"""A node of one cell with the words that its tests use."""

from __future__ import annotations

from typing import Any

from quaestor.invalidation.matching.node import MatchingNode, Outcome
from quaestor.invalidation.matching.node_limits import NodeLimits
from quaestor.model import (
    AfterImage,
    Cell,
    Document,
    GridShape,
    Invalidated,
    Operation,
    Query,
    Registration,
    WriteKind,
)
from quaestor.planning.plan import plan_query

NAMESPACE = "shop.items"
NOW_MS = 1_000_000
NOTHING = object()


class Scene:
    """Versions count up from 100; the node has seen everything since then."""

    def __init__(self, *, cell: Cell | None = None, shape: GridShape | None = None, **limits: Any) -> None:
        self.node = MatchingNode(
            cell or Cell(query_partition=0, write_partition=0),
            shape or GridShape(query_partitions=1, write_partitions=1),
            retention_ms=limits.pop("retention_ms", 60_000),
            limits=NodeLimits(**limits),
        )
        self.version = 100
        self.now_ms = NOW_MS
        self.counter = 0
        self.node.process(self.image(WriteKind.TICK, version=100), now_ms=self.now_ms)

    def image(
        self,
        kind: WriteKind,
        key: Any = None,
        after: Document | None = None,
        *,
        before: Any = NOTHING,
        version: int | None = None,
        exact: bool | None = None,
        changed: tuple[str, ...] | None = None,
        namespace: str = NAMESPACE,
    ) -> AfterImage:
        if version is None:
            self.version += 1
            version = self.version
        return AfterImage(
            namespace=namespace,
            kind=kind,
            version=version,
            key=key,
            after=after,
            after_exact=kind is not WriteKind.UPDATE if exact is None else exact,
            before=None if before is NOTHING else before,
            before_known=before is not NOTHING or kind is WriteKind.INSERT,
            changed=changed,
            wall_ms=self.now_ms,
        )

    def write(self, kind: WriteKind, key: Any = None, after: Document | None = None, **rest: Any) -> list[Invalidated]:
        return self.node.process(self.image(kind, key, after, **rest), now_ms=self.now_ms)

    def insert(self, record: Document, **rest: Any) -> list[Invalidated]:
        return self.write(WriteKind.INSERT, record["_id"], record, **rest)

    def update(self, record: Document, **rest: Any) -> list[Invalidated]:
        """Update a record; with `before`, as in a collection with pre- and post-images."""
        return self.write(WriteKind.UPDATE, record["_id"], record, **({"exact": "before" in rest} | rest))

    def delete(self, key: Any, **rest: Any) -> list[Invalidated]:
        return self.write(WriteKind.DELETE, key, None, **rest)

    def registration(
        self,
        query: Query,
        members: tuple[Any, ...] | None = (),
        *,
        last: Document | None = None,
        since: int | None = None,
        read_at: int | None = None,
        expires_in_ms: int = 60_000,
        registration_id: str | None = None,
    ) -> Registration:
        self.counter += 1
        since = self.version if since is None else since
        return Registration(
            id=registration_id or f"app:{self.counter}",
            tenant="t",
            query_id=plan_query(query).query_id,
            query=query,
            since=since,
            read_at=since if read_at is None else read_at,
            members=members,
            last=last,
            expires_at_ms=self.now_ms + expires_in_ms,
        )

    def register(self, query: Query, members: tuple[Any, ...] | None = (), **rest: Any) -> list[Outcome]:
        return self.node.register(self.registration(query, members, **rest), now_ms=self.now_ms)


def find(filter: Document | None = None, **rest: Any) -> Query:  # noqa: A002
    return Query(namespace=rest.pop("namespace", NAMESPACE), operation=Operation.FIND, filter=filter or {}, **rest)


def count(filter: Document | None = None, **rest: Any) -> Query:  # noqa: A002
    return Query(namespace=NAMESPACE, operation=Operation.COUNT, filter=filter or {}, **rest)


def distinct(key: str, filter: Document | None = None) -> Query:  # noqa: A002
    return Query(namespace=NAMESPACE, operation=Operation.DISTINCT, filter=filter or {}, distinct_key=key)


def aggregate(*pipeline: Document, namespace: str = NAMESPACE) -> Query:
    return Query(namespace=namespace, operation=Operation.AGGREGATE, filter={}, pipeline=tuple(pipeline))


def types(fired: list[Any]) -> list[str]:
    """The match types of what a node returned, or the names of other outcomes."""
    return [str(item.match_type) if isinstance(item, Invalidated) else type(item).__name__ for item in fired]
