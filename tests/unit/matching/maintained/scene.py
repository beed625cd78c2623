"""A collection in a dictionary, whose writes become images for one maintained result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quaestor.incremental import MaintainedResult, PriorState, RenewalSettings, ResultEvent, maintain
from quaestor.model import AfterImage, Operation, Query, WriteKind

Record = dict[str, Any]
NAMESPACE = "db.things"


def find(**options: Any) -> Query:
    return Query(namespace=NAMESPACE, operation=Operation.FIND, filter=options.pop("filter", {}), **options)


def count(**options: Any) -> Query:
    return Query(namespace=NAMESPACE, operation=Operation.COUNT, filter=options.pop("filter", {}), **options)


def aggregate(*stages: Mapping[str, Any]) -> Query:
    return Query(namespace=NAMESPACE, operation=Operation.AGGREGATE, filter={}, pipeline=stages)


def event_rows(events: Sequence[ResultEvent]) -> list[tuple[Any, ...]]:
    """Return match type, key, index and previous index of each event."""
    return [(event.match_type.value, event.key, event.index, event.previous_index) for event in events]


class Scene:
    """initial: the records of db.things; others: those of db.others. Versions count up from 10."""

    def __init__(
        self,
        query: Query,
        initial: Sequence[Record] = (),
        *,
        others: Sequence[Record] = (),
        before_images: bool = False,
        read: Sequence[Record] | None = None,
        **settings: int,
    ) -> None:
        """read: what the bootstrap query found, if that is not all of the records."""
        self.version = 10
        self.state: dict[tuple[str, Any], Record] = {(NAMESPACE, record["_id"]): record for record in initial}
        self.state |= {("db.others", record["_id"]): record for record in others}
        self.before_images = before_images
        self.maintained: MaintainedResult = maintain(
            query,
            initial=initial if read is None else read,
            version=self.version,
            foreign={"db.others": others},
            prior_state=PriorState.BEFORE_IMAGES if before_images else PriorState.MEMBERSHIP,
            settings=RenewalSettings(**settings),
        )

    def image(
        self, key: Any, body: Record | None, *, namespace: str = NAMESPACE, version: int | None = None
    ) -> AfterImage:
        """The image of inserting, updating (body) or deleting (None) the record."""
        self.version += 1
        before = self.state.pop((namespace, key), None)
        after = None if body is None else {"_id": key, **body}
        if after is not None:
            self.state[namespace, key] = after
        kind = WriteKind.DELETE if after is None else WriteKind.INSERT if before is None else WriteKind.UPDATE
        return AfterImage(
            namespace=namespace,
            kind=kind,
            version=version or self.version,
            key=key,
            after=after,
            after_exact=after is not None,
            before=before if self.before_images else None,
            before_known=self.before_images or kind is WriteKind.INSERT,
            wall_ms=self.version * 1_000,
        )

    def put(self, key: Any, **body: Any) -> list[ResultEvent]:
        return self.maintained.apply(self.image(key, body))

    def delete(self, key: Any) -> list[ResultEvent]:
        return self.maintained.apply(self.image(key, None))

    def put_other(self, key: Any, **body: Any) -> list[ResultEvent]:
        return self.maintained.apply(self.image(key, body, namespace="db.others"))

    def delete_other(self, key: Any) -> list[ResultEvent]:
        return self.maintained.apply(self.image(key, None, namespace="db.others"))

    def shown(self) -> list[Any]:
        return self.maintained.result()

    def ids(self) -> list[Any]:
        return [row["_id"] for row in self.maintained.result()]
