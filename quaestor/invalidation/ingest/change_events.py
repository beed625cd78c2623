"""Change stream events as after-images. Pure: one event in, its meaning for cached results out.

Source: the manual pages "Change Events" and "Expanded events"; what they leave open, as mongod 6.0 does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import bson
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from quaestor.cluster_time import version_of
from quaestor.event_layer.codec import BSON_OPTIONS, plain
from quaestor.model import AfterImage, Version, WriteKind
from quaestor.planning.index_order import ANY_INDEX
from quaestor.query.bson_order import milliseconds

RAW_OPTIONS: Final[CodecOptions[RawBSONDocument]] = BSON_OPTIONS.with_options(document_class=RawBSONDocument)
"""How change events are decoded: lazily, so that the records in them travel on as the bytes that mongod sent."""

_LENIENT_OPTIONS: Final = RAW_OPTIONS.with_options(unicode_decode_error_handler="replace")

EVERYTHING: Final = "*"
"""The namespace of gaps and ticks."""

RECORD_KINDS: Final = {
    "insert": WriteKind.INSERT,
    "update": WriteKind.UPDATE,
    "replace": WriteKind.REPLACE,
    "delete": WriteKind.DELETE,
}
"""What is the write of one record, by `operationType`."""
CHANGED: Final = "changed"
"""The field in which `STAGES` put the paths that an update touched."""
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
"""Stages behind `$changeStream`: updates carry the names of their fields and not the values; no event names its transaction."""
_MOST_PATHS: Final = 64

_INDEX_EVENTS: Final = frozenset({"createIndexes", "dropIndexes"})
_BUILD_EVENTS: Final = frozenset({"startIndexBuild", "commitIndexBuild", "abortIndexBuild"})
"""The event `createIndexes` follows when an index is ready: until then it finds nothing."""
_MODIFY: Final = "modify"
_NO_RESULT: Final = frozenset({"validator", "validationLevel", "validationAction", "changeStreamPreAndPostImages"})
"""What collMod changes without changing any result."""
_NO_RESULT_OF_INDEX: Final = frozenset({"name", "keyPattern", "expireAfterSeconds", "prepareUnique", "unique"})
"""The same of an index."""
_HIDDEN: Final = frozenset({"hidden"})


def after_images(event: Mapping[str, Any], *, post_images: bool) -> list[AfterImage]:
    """The images of one event, in order. None for events that change no result (validators).

    post_images: the server is 6.0 or newer: `fullDocument` of an update is the image of that very write, not a later
        look-up. If it is missing, the image comes back without `after`, not exact: whoever needs the record looks it
        up. An event of indexes says which fields they begin with. Everything else that is not the write of one record
        is a COLLECTION image of the namespaces concerned (`db.*` for a whole database), and what names no namespace is
        a GAP: an event of a future server changes too much rather than too little.
    """
    if isinstance(event, RawBSONDocument):
        event = dict(event.items())  # what is in it stays undecoded; a look-up costs a tenth of one in the document
    operation = event["operationType"]
    kind = RECORD_KINDS.get(operation)
    if kind is not None:
        return [_record(event, kind, post_images)]
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
    """Cluster time and resume token, BSON, of any event, also of one that cannot be read otherwise."""
    fields = RawBSONDocument(event.raw, _LENIENT_OPTIONS)
    return version_of(fields["clusterTime"]), bytes(fields["_id"].raw)


def unreadable(event: RawBSONDocument) -> AfterImage:
    """The image of an event that `after_images` does not understand: anything in its collection may have changed, if that is
    known, or anything at all."""
    fields = RawBSONDocument(event.raw, _LENIENT_OPTIONS)
    namespace, kind = EVERYTHING, WriteKind.GAP
    with suppress(BSONError, KeyError, TypeError):
        namespace, kind = _namespace(fields["ns"]), WriteKind.COLLECTION
    return AfterImage(
        namespace=namespace, kind=kind, version=version_of(fields["clusterTime"]), wall_ms=_wall_ms(fields)
    )


def _record(event: Mapping[str, Any], kind: WriteKind, post_images: bool) -> AfterImage:
    after = None if kind is WriteKind.DELETE else event.get("fullDocument")
    before = event.get("fullDocumentBeforeChange")
    return AfterImage(
        namespace=_namespace(event["ns"]),
        kind=kind,
        version=version_of(event["clusterTime"]),
        key=_key(event["documentKey"]),
        after=after,
        after_exact=after is not None and (post_images or kind is not WriteKind.UPDATE),
        before=before,
        before_known=before is not None or kind is WriteKind.INSERT,
        changed=_changed(event, exact=post_images) if kind is WriteKind.UPDATE else None,
        wall_ms=_wall_ms(event),
    )


def _changed(event: Mapping[str, Any], *, exact: bool) -> tuple[str, ...] | None:
    """The touched paths, from `STAGES` or from the event as mongod sends it; an update of very many fields by their first
    components, if those are few enough.

    exact: a document that an update creates on its way is named itself. Servers before 6.0 may name what it put
        inside, so there first components have to do.
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
    """These paths, each once; of very many only the first components, or None.

    exact: see `after_images`.
    """
    paths = tuple(dict.fromkeys(names))
    if len(paths) > _MOST_PATHS or not exact:
        paths = tuple(dict.fromkeys(path.partition(".")[0] for path in paths))
    return paths if len(paths) <= _MOST_PATHS else None


def _key(document_key: Mapping[str, Any]) -> Any:
    """Decoding these few bytes at once costs half of what doing it lazily does."""
    if isinstance(document_key, RawBSONDocument):
        return bson.decode(document_key.raw, BSON_OPTIONS)["_id"]
    return plain(document_key["_id"])


def _namespace(ns: Mapping[str, Any]) -> str:
    if isinstance(ns, RawBSONDocument):
        return _namespace_in(bytes(ns.raw))
    return f"{ns['db']}.{ns.get('coll', '*')}"


@lru_cache(maxsize=1_024)
def _namespace_in(raw: bytes) -> str:
    """One write after the other concerns the same few collections."""
    ns: dict[str, Any] = bson.decode(raw, BSON_OPTIONS)
    return _namespace(ns)


def _wall_ms(event: Mapping[str, Any]) -> int:
    """Servers before 6.0 tell only the second (of the cluster time)."""
    wall = event.get("wallTime")
    return event["clusterTime"].time * 1000 if wall is None else milliseconds(wall)


def _without_results(description: Mapping[str, Any] | None, *, besides: frozenset[str] = frozenset()) -> bool:
    """Whether all that a collMod did, but for these options of an index, is known to change no result."""
    if not description:
        return False
    index = description.get("index") or {}
    return description.keys() <= _NO_RESULT | {"index"} and index.keys() <= _NO_RESULT_OF_INDEX | besides


def _indexes(operation: str, description: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The first fields of the indexes that can find records since an event, or no longer; None: it may have changed anything.

    So may a text index: its definition (fields, weights, language) decides what `$text` finds.
    """
    if operation == _MODIFY:  # a hidden index finds nothing; the event tells its name and not its key
        return (ANY_INDEX,) if _without_results(description, besides=_HIDDEN) else None
    if operation not in _INDEX_EVENTS:
        return None
    indexes = description.get("indexes") or ()
    keys = [list(index.get("key") or (ANY_INDEX,)) for index in indexes if not index.get("hidden")]
    if any("_fts" in key for key in keys):
        return None
    return tuple(sorted({key[0] for key in keys})) if indexes else (ANY_INDEX,)
