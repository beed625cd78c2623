"""Rows of the source: the columns, and the conversion of pipeline entries into rows.

There are two kinds of rows. `events` are for counting: (at, scope, name, measure, n, item). `history` rows are the writes
themselves.

| scope | name | measures | item |
|---|---|---|---|
| collection | namespace | insert, update, replace, delete, collection | the record's key |
| query | query id | add, change, changeIndex, remove, match, evicted; miss, hit | the key of the record that caused it |
| kind | query id | miss | the kind of the query's result: `quaestor/ttl/query_classes.py` |
| deployment | "" | hit (by query or not), unattributed, lost, gap, unreadable, tick | |

Ticks are counted so that windows end even without writes: time goes on as long as ingest lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import bson
from bson.codec_options import CodecOptions

from quaestor.errors import EventLayerError
from quaestor.event_layer import offsets
from quaestor.event_layer.codec import BSON_OPTIONS, LazyImage, decode_notification
from quaestor.invalidation.registry.registration_ids import round_of
from quaestor.model import AfterImage, Invalidated, OutsideGrid, Registration, Usage, WriteKind
from quaestor.ports import StreamEntry
from quaestor.statistics import key_text
from quaestor.statistics.registered_queries import RegisteredQueries, understood
from quaestor.ttl.query_classes import kind_of

COLLECTION: Final = "collection"
QUERY: Final = "query"
KIND: Final = "kind"
DEPLOYMENT: Final = "deployment"

WRITE_MEASURES: Final = ("insert", "update", "replace", "delete", "collection")
MATCH_MEASURES: Final = ("add", "change", "changeIndex", "remove", "match", "evicted")
READ_MEASURES: Final = ("miss", "hit")
DEPLOYMENT_MEASURES: Final = ("unattributed", "gap", "lost", "unreadable", "tick")
MEASURES: Final = (*WRITE_MEASURES, *MATCH_MEASURES, *READ_MEASURES, *DEPLOYMENT_MEASURES)

MOST_NAME: Final = 300
"""Largest number of characters of a namespace or query id; MongoDB's own bound for a namespace is 255 bytes."""

LOST: Final = "lost"
"""Kind of a history row that stands for writes trimmed before they were read."""

EVENT_COLUMNS: Final = "at timestamp, scope string, name string, measure string, n bigint, item string"
HISTORY_COLUMNS: Final = (
    "namespace string, kind string, version bigint, key binary, key_json string, after binary, after_exact boolean, "
    "wall_ms bigint, appended_ms bigint, lost bigint, detail string"
)


class Gap(NamedTuple):
    """Gap of a pipeline: entries are missing.

    lost: their number; None: not known.
    why: trimmed, reset.
    since, until: offsets around it.
    """

    lost: int | None
    why: str
    since: str
    until: str


class Event(NamedTuple):
    """Event of a pipeline: one row of `events`; at_ms becomes the timestamp."""

    at_ms: int
    scope: str
    name: str
    measure: str
    n: int = 1
    item: str | None = None


class HistoryRow(NamedTuple):
    """One row of `history`: see docs/statistics.md."""

    namespace: str
    kind: str
    version: int
    key: bytes | None
    key_json: str | None
    after: bytes | None
    after_exact: bool
    wall_ms: int
    appended_ms: int
    lost: int | None = None
    detail: str | None = None


def write_events(entry: StreamEntry, image: AfterImage) -> Iterator[Event]:
    """Yield the events of an entry of a write pipeline."""
    at_ms = offsets.appended_at_ms(entry.offset)
    if image.kind in (WriteKind.GAP, WriteKind.TICK):
        yield Event(at_ms, DEPLOYMENT, "", image.kind.value)
    else:
        item = None if image.key is None else key_text.bounded(image.key)
        yield Event(at_ms, COLLECTION, image.namespace[:MOST_NAME], image.kind.value, 1, item)


def read_events(entry: StreamEntry, registered: RegisteredQueries, *, leader: bool) -> Iterator[Event]:
    """Yield the events of an entry of a query pipeline.

    leader: in this pipeline the reports sent to all pipelines are counted. Raises EventLayerError.
    """
    at_ms = offsets.appended_at_ms(entry.offset)
    message = understood(entry.payload)
    if isinstance(message, Registration):
        registered.add(message)
        if round_of(message.id):
            return  # renewed: there was no miss
        yield Event(at_ms, QUERY, message.query_id[:MOST_NAME], "miss")
        yield Event(at_ms, KIND, message.query_id[:MOST_NAME], "miss", 1, kind_of(message.query)[:MOST_NAME])
    elif isinstance(message, Usage):
        for query_id, reads in message.queries:
            yield Event(at_ms, QUERY, query_id[:MOST_NAME], "hit", reads)
            yield Event(at_ms, DEPLOYMENT, "", "hit", reads)
        for registration_id, reads in message.registrations:
            query = registered.query_of(registration_id)
            if query is not None:
                yield Event(at_ms, QUERY, query[:MOST_NAME], "hit", reads)
                yield Event(at_ms, DEPLOYMENT, "", "unattributed", -reads)
            if leader:
                yield Event(at_ms, DEPLOYMENT, "", "hit", reads)
                yield Event(at_ms, DEPLOYMENT, "", "unattributed", reads)


def match_events(entry: StreamEntry) -> Iterator[Event]:
    """Yield the events of an entry of a notification pipeline. Raises EventLayerError."""
    message = decode_notification(entry.payload)
    if isinstance(message, Invalidated) and not (message.source is OutsideGrid.NAME and message.query_id):
        # A cell has reported the change before an app process that ran the query again.
        item = None if message.key is None else key_text.bounded(message.key)
        at_ms = offsets.appended_at_ms(entry.offset)
        yield Event(at_ms, QUERY, message.query_id[:MOST_NAME], message.match_type.value, 1, item)


def gap_events(gap: Gap) -> Iterator[Event]:
    """Yield the events of missing entries."""
    at_ms = offsets.appended_at_ms(gap.until)
    yield Event(at_ms, DEPLOYMENT, "", "gap")
    if gap.lost:
        yield Event(at_ms, DEPLOYMENT, "", "lost", gap.lost)


def history_row(entry: StreamEntry, image: AfterImage) -> HistoryRow | None:
    """Return the history's row of a write; None for ticks, which are no writes."""
    if image.kind is WriteKind.TICK:
        return None
    appended_ms = offsets.appended_at_ms(entry.offset)
    return HistoryRow(
        namespace=image.namespace[:MOST_NAME],
        kind=image.kind.value,
        version=image.version,
        key=None if image.key is None else _encoded({"_id": image.key}),
        key_json=None if image.key is None else key_text.full(image.key)[:MOST_NAME],
        after=after_bytes(image),
        after_exact=image.after_exact,
        wall_ms=image.wall_ms or appended_ms,
        appended_ms=appended_ms,
    )


def gap_row(gap: Gap) -> HistoryRow:
    """Return the history's row of a gap, which marks missing writes."""
    until_ms = offsets.appended_at_ms(gap.until)
    return HistoryRow(
        namespace="*", kind=LOST, version=0, key=None, key_json=None, after=None, after_exact=False, wall_ms=until_ms,
        appended_ms=until_ms, lost=gap.lost, detail=f"{gap.why}: after {gap.since}, up to {gap.until}",
    )  # fmt: skip


def unreadable_row(entry: StreamEntry, error: EventLayerError) -> HistoryRow:
    """Return the row of an entry that this release cannot read: its bytes are kept."""
    at_ms = offsets.appended_at_ms(entry.offset)
    return HistoryRow(
        namespace="*", kind="unreadable", version=0, key=None, key_json=None, after=entry.payload, after_exact=False,
        wall_ms=at_ms, appended_ms=at_ms, lost=None, detail=str(error)[:MOST_NAME],
    )  # fmt: skip


def after_bytes(image: AfterImage) -> bytes | None:
    """Return the after-image as BSON; the original bytes if it was never decoded."""
    undecoded = image._after if isinstance(image, LazyImage) else None
    if isinstance(undecoded, bytes):
        return undecoded
    return None if image.after is None else _encoded(image.after)


_OPTIONS: Final[CodecOptions[dict[str, Any]]] = BSON_OPTIONS


def _encoded(document: Any) -> bytes:
    return bson.encode(document, codec_options=_OPTIONS)
