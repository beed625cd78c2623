"""Maintained reads: reads from a result that the grid keeps up to date, noted as the query that the result belongs to.

Such a result contains every write up to a version, and perhaps newer ones. A reply with that operationTime has the same property.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.capture.commands import understand
from quaestor.capture.recorder import ReadInProgress, Recorder
from quaestor.model import Document, Query, Uncacheable, Version


def note_maintained(
    recorder: Recorder, query: Query, documents: Sequence[Document], *, version: Version, duration_ms: float
) -> None:
    """Note a find, without a projection, that was answered from its maintained result.

    documents: the whole records, in order, never changed again.
    version: every write up to it is contained.
    duration_ms: how long it took.
    """
    database, _, collection = query.namespace.partition(".")
    command = {
        "find": collection, "filter": query.filter, "sort": dict(query.sort), "skip": query.skip or 0, "limit": query.limit or 0,
    }  # fmt: skip
    understood = understand("find", command, database)
    for reason, detail in understood.reasons:
        recorder.refuse(reason, detail)
    if understood.query is None:
        return
    if understood.query.clock is not None:
        recorder.refuse(Uncacheable.CLOCK, "a maintained result is of no known time")
    request = object()
    recorder.begin(request, ReadInProgress(understood=understood, operation_id=None, primary=True, ids=[]))
    recorder.replied(
        request,
        read_at=version,
        ids=[document["_id"] for document in documents],
        last=documents[-1] if documents and query.limit else None,
        cursor=None,
        cursor_id=0,
        duration_ms=duration_ms,
    )
