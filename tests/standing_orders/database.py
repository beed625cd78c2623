"""The database of a small world: all its states, the images of its writes, and queries executed on any of them from scratch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quaestor.model import AfterImage, Operation, Query, Version, WriteKind
from quaestor.query.compiled import compile_query
from quaestor.query.sorting import sort_documents
from quaestor.realtime.snapshots import Snapshot

Document = dict[str, Any]
State = Mapping[int, Document]
Change = tuple[int, Document | None]
"""A record's key and its new body; None deletes it."""
START_MS = 1_700_000_000_000
BASE: Version = 1_000
APART = 10
"""Versions of neighbouring writes: there are versions between them."""
NAMESPACE = "db.c"


class Database:
    """start: its records as of BASE. Write n is there as of BASE + n * APART. images: it records them before and after each,
    save for what was before the write `unseen`, counted from 0."""

    def __init__(self, start: State, changes: Sequence[Change], *, images: bool, unseen: int | None = None) -> None:
        self.states: list[State] = [start]
        self.log: list[AfterImage] = []
        self.written = 0
        self._images = images
        for number, (key, body) in enumerate(changes):
            known = images and number != unseen
            before = self.states[-1]
            after = None if body is None else {"_id": key} | body
            kept = {other: record for other, record in before.items() if other != key}
            self.states.append(kept if after is None else kept | {key: after})
            kind = WriteKind.DELETE if after is None else WriteKind.UPDATE if key in before else WriteKind.INSERT
            self.log.append(
                AfterImage(
                    namespace=NAMESPACE, kind=kind, version=self.version_of(len(self.states) - 1), key=key, after=after,
                    after_exact=after is not None, before=before.get(key) if known else None, before_known=known,
                    wall_ms=START_MS + len(self.states),
                )
            )  # fmt: skip

    @staticmethod
    def version_of(written: int) -> Version:
        return BASE + written * APART

    def lacking_images(
        self, namespaces: Sequence[str], *, at_least: Version, anew: bool = False, collated: bool = False
    ) -> tuple[str, ...]:
        return () if self._images else tuple(namespaces)

    def read(self, queries: Sequence[Query], *, at_least: Version, recent: Version = 0) -> Snapshot:
        newest = self.version_of(self.written)
        version = max(at_least, recent or newest)
        assert version <= newest, f"read as of {version}, but there is nothing after {newest}"
        (query,) = queries
        return Snapshot(version=version, own=execute(query, self.states[(version - BASE) // APART]), foreign={})


def execute(query: Query, state: State) -> list[Any]:
    """Return the database's answer; of count a list with the number."""
    if query.operation is Operation.AGGREGATE:  # how a count by before-images begins
        records = execute(
            Query(namespace=NAMESPACE, operation=Operation.FIND, filter=query.pipeline[0]["$match"]), state
        )
        return [{"_id": {"v": [None, 1], "t": ["null", "int"]}, "n": len(records)}] if records else []
    matches = compile_query(query.filter).matches
    records = sort_documents([record for record in state.values() if matches(record)], query.sort, by_id=True)
    records = records[query.skip : query.skip + query.limit if query.limit else None]
    return [len(records)] if query.operation is Operation.COUNT else records
