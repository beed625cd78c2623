"""Change stream events as after-images. Pure: one event in, its meaning for cached results out.

Source: the manual pages "Change Events" and "Expanded events". Points that they leave open follow mongod 6.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

import bson
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from quaestor.cluster_time import version_of
from quaestor.event_layer.codec import BSON_OPTIONS, plain
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.model import AfterImage, Version, WriteKind
from quaestor.planning.index_order import ANY_INDEX
from quaestor.query.bson_order import milliseconds

RAW_OPTIONS: Final[CodecOptions[RawBSONDocument]] = BSON_OPTIONS.with_options(document_class=RawBSONDocument)
"""Options that decode change events lazily: the records in them travel on as the bytes that mongod sent."""

_LENIENT_OPTIONS: Final = RAW_OPTIONS.with_options(unicode_decode_error_handler="replace")

EVERYTHING: Final = "*"
"""Namespace of gaps and ticks."""

RECORD_KINDS: Final = {
    "insert": WriteKind.INSERT,
    "update": WriteKind.UPDATE,
    "replace": WriteKind.REPLACE,
    "delete": WriteKind.DELETE,
}
"""Kinds of write to a single record, by `operationType`."""
CHANGED: Final = "changed"
"""Field in which `STAGES` put the paths that an update touched."""
_NAMES: Final = {
    "$concatArrays": [
        {
            "$map": {
                "input": {"$objectToArray": {"$ifNull": ["$updateDescription.updatedFields", {}]}},
                "in": "$$this.k",
            }
        },
        {"$ifNull": ["$updateDescription.removedFields", []]},
        {"$map": {"input": {"$ifNull": ["$updateDescription.truncatedArrays", []]}, "in": "$$this.field"}},
    ]
}
STAGES: Final[tuple[dict[str, Any], ...]] = (
    {"$set": {CHANGED: {"$cond": [{"$eq": ["$operationType", "update"]}, _NAMES, "$$REMOVE"]}}},
    {"$unset": ["updateDescription", "lsid", "txnNumber"]},
)
"""Stages behind `$changeStream`: updates carry the names of their fields, not the values; no event names its transaction."""
_MOST_PATHS: Final = 64

_INDEX_EVENTS: Final = frozenset({"createIndexes", "dropIndexes"})
_BUILD_EVENTS: Final = frozenset({"startIndexBuild", "commitIndexBuild", "abortIndexBuild"})
"""Events of index builds. `createIndexes` follows when the index is ready; until then no query uses it."""
_MODIFY: Final = "modify"
_NO_RESULT: Final = frozenset({"validator", "validationLevel", "validationAction", "changeStreamPreAndPostImages"})
"""Options of collMod that change no result."""
_NO_RESULT_OF_INDEX: Final = frozenset({"name", "keyPattern", "expireAfterSeconds", "prepareUnique", "unique"})
"""Options of an index in collMod that change no result."""
_HIDDEN: Final = frozenset({"hidden"})


def after_images(event: Mapping[str, Any], *, records: RecordSource) -> list[AfterImage]:
    """Return the images of one event, in order. None for events that change no result (validators).

    The record of an update may be missing. The image then has no `after` and is not exact; its reader looks the record up.
    An event of indexes names the first fields of the indexes. Any other event that is not the write of one record becomes a
    COLLECTION image of its namespaces (`db.*` for a whole database). An event without a namespace becomes a GAP: an unknown
    event of a future server invalidates too much rather than too little.

    records: the records in updates, as the stream was opened.
    """
    if isinstance(event, RawBSONDocument):
        event = dict(event.items())  # its content stays undecoded; a look-up costs a tenth of one in the document
    operation = event["operationType"]
    kind = RECORD_KINDS.get(operation)
    if kind is not None:
        return [_record(event, kind, records)]
    if operation in _BUILD_EVENTS or (operation == _MODIFY and _without_results(event.get("operationDescription"))):
        return []
    indexes = _indexes(operation, event.get("operationDescription") or {})
    if indexes == ():
        return []
    version, wall_ms = version_of(event["clusterTime"]), _wall_ms(event)
    namespaces = [_namespace(event[field]) for field in ("ns", "to") if event.get(field)]
    if not namespaces:
        return [AfterImage(namespace=EVERYTHING, kind=WriteKind.GAP, version=version, wall_ms=wall_ms)]
    return [
        AfterImage(namespace=namespace, kind=WriteKind.COLLECTION, version=version, changed=indexes, wall_ms=wall_ms)
        for namespace in namespaces
    ]


def time_and_token(event: RawBSONDocument) -> tuple[Version, bytes]:
    """Return the cluster time and the resume token (BSON) of any event, even of one that is otherwise unreadable."""
    fields = RawBSONDocument(event.raw, _LENIENT_OPTIONS)
    return version_of(fields["clusterTime"]), bytes(fields["_id"].raw)


class Collection(NamedTuple):
    """Name of a collection, from field `ns` of its events."""

    db: str
    coll: str


def collection_of(event: RawBSONDocument) -> Collection | None:
    """Return the collection of an event, or None if the event concerns several or the name cannot be decoded."""
    try:
        ns = bson.decode(event["ns"].raw, BSON_OPTIONS)
        return Collection(ns["db"], ns["coll"])
    except (BSONError, KeyError, AttributeError):
        return None


def unreadable(event: RawBSONDocument) -> AfterImage:
    """Return the image of an unreadable event: its collection may have changed, or, if that is unknown, everything."""
    fields = RawBSONDocument(event.raw, _LENIENT_OPTIONS)
    namespace, kind = EVERYTHING, WriteKind.GAP
    with suppress(BSONError, KeyError, TypeError):
        namespace, kind = _namespace(fields["ns"]), WriteKind.COLLECTION
    return AfterImage(
        namespace=namespace, kind=kind, version=version_of(fields["clusterTime"]), wall_ms=_wall_ms(fields)
    )


def _record(event: Mapping[str, Any], kind: WriteKind, records: RecordSource) -> AfterImage:
    after = None if kind is WriteKind.DELETE else event.get("fullDocument")
    before = event.get("fullDocumentBeforeChange")
    return AfterImage(
        namespace=_namespace(event["ns"]),
        kind=kind,
        version=version_of(event["clusterTime"]),
        key=_key(event["documentKey"]),
        after=after,
        after_exact=after is not None and not (records.looked_up and kind is WriteKind.UPDATE),
        before=before,
        before_known=before is not None or kind is WriteKind.INSERT,
        changed=_changed(event, exact=records is not RecordSource.LOOKED_UP_BEFORE_6_0)
        if kind is WriteKind.UPDATE
        else None,
        wall_ms=_wall_ms(event),
    )


def _changed(event: Mapping[str, Any], *, exact: bool) -> tuple[str, ...] | None:
    """Return the touched paths, from `STAGES` or from the event as mongod sends it.

    Of an update of very many fields, return the first components, if those are few enough.

    exact: a document that an update creates on its way is named itself. Servers before 6.0 may name its content instead; there
        only first components are reliable.
    """
    names = event.get(CHANGED)
    if names is None:
        description = event.get("updateDescription")
        if description is None:
            return None
        truncated = (array["field"] for array in description.get("truncatedArrays") or ())
        names = [*(description.get("updatedFields") or ()), *(description.get("removedFields") or ()), *truncated]
    return touched_paths(names, exact=exact)


def touched_paths(names: Iterable[str], *, exact: bool) -> tuple[str, ...] | None:
    """Return these paths, each once; of very many only the first components, or None.

    exact: see `_changed`.
    """
    paths = tuple(dict.fromkeys(names))
    if len(paths) > _MOST_PATHS or not exact:
        paths = tuple(dict.fromkeys(path.partition(".")[0] for path in paths))
    return paths if len(paths) <= _MOST_PATHS else None


def _key(document_key: Mapping[str, Any]) -> Any:
    """Decode the `_id`. At once, these few bytes cost half of lazy decoding."""
    if isinstance(document_key, RawBSONDocument):
        return bson.decode(document_key.raw, BSON_OPTIONS)["_id"]
    return plain(document_key["_id"])


def _namespace(ns: Mapping[str, Any]) -> str:
    if isinstance(ns, RawBSONDocument):
        return _namespace_in(bytes(ns.raw))
    return f"{ns['db']}.{ns.get('coll', '*')}"


@lru_cache(maxsize=1_024)
def _namespace_in(raw: bytes) -> str:
    """Return the namespace. Cached, because successive writes concern the same few collections."""
    ns: dict[str, Any] = bson.decode(raw, BSON_OPTIONS)
    return _namespace(ns)


def _wall_ms(event: Mapping[str, Any]) -> int:
    """Return the wall time of the event in ms. Servers before 6.0 send only the second, in the cluster time."""
    wall = event.get("wallTime")
    return event["clusterTime"].time * 1000 if wall is None else milliseconds(wall)


def _without_results(description: Mapping[str, Any] | None, *, besides: frozenset[str] = frozenset()) -> bool:
    """Whether a collMod certainly changed no result, apart from these options of an index."""
    if not description:
        return False
    index = description.get("index") or {}
    return description.keys() <= _NO_RESULT | {"index"} and index.keys() <= _NO_RESULT_OF_INDEX | besides


def _indexes(operation: str, description: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the first fields of the indexes that an event added or removed; None: it may have changed anything.

    A text index may change anything: its definition (fields, weights, language) decides the results of `$text`.
    """
    if operation == _MODIFY:  # a hidden index finds nothing; the event holds its name, not its key
        return (ANY_INDEX,) if _without_results(description, besides=_HIDDEN) else None
    if operation not in _INDEX_EVENTS:
        return None
    indexes = description.get("indexes") or ()
    keys = [list(index.get("key") or (ANY_INDEX,)) for index in indexes if not index.get("hidden")]
    if any("_fts" in key for key in keys):
        return None
    return tuple(sorted({key[0] for key in keys})) if indexes else (ANY_INDEX,)
