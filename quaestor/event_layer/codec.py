"""Wire format of all pipelines: BSON. Each payload is one document that begins with `{"v": 1, "t": <type>}`.

| type | fields |
|---|---|
| `i` image | k kind, ns namespace, ver version, w wall_ms, key, f flags, p changed; a, b: images after and before, bytes |
| `r` registration | id, tenant, qid, since, at, members, last, exp, query: {ns, op, ...}, by: {ver, records, all, shown} |
| `c` cancellation | tenant, qid, ids |
| `u` usage | tenant, q, r: [[id of a query or registration, reads], ...] |
| `+` activated, `-` refused | id, cell, rate / reason |
| `!` invalidated | ids, qid, m match type, ver, key, w, cell, x exact; src: name or clock, then cell is void |
| `+` renewed | id, ren: true; cell and rate are void: earlier releases take it for an activation without a waiting caller |
| `h` heartbeat | cell, shape, now, fresh, ver, regs, writes; done: version up to which every write is matched |

The images lie inside as opaque bytes, decoded at their first use: a node without a query on a namespace never decodes them.
Fields that are None or empty are left out. Another "v" is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from quaestor.clock import ClockWatch
from quaestor.errors import EventLayerError, UnsupportedQueryError
from quaestor.event_layer.query_fields import query_fields, query_of
from quaestor.event_layer.shapes import decode_shape, encode_shape
from quaestor.model import (
    Activated,
    AfterImage,
    Cancellation,
    Cell,
    Contributors,
    Document,
    Heartbeat,
    Invalidated,
    MatchType,
    Notification,
    OutsideGrid,
    Refused,
    Registration,
    Renewed,
    Usage,
    WriteKind,
)

FORMAT: Final = 1

BSON_OPTIONS: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    document_class=dict,
    tz_aware=False,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
"""Options with which every part decodes documents: equal records are equal values everywhere, and encoding again loses nothing.

UUIDs stay Binary with their subtype. Dates are naive UTC datetimes, or DatetimeMS where Python has no such year. int64 stays
Int64. A native uuid.UUID cannot be encoded with these options: only its client knows its layout.
"""

Fields = Mapping[str, Any]
T = TypeVar("T")
_TYPE_AT: Final = slice(11, 19)
"""Position of the type in a payload, with the head of its field."""
_HEAD: Final = b"\x02t\x00\x02\x00\x00\x00"
AFTER_EXACT: Final = 1
BEFORE_KNOWN: Final = 2
_FIRST_CELL: Final = Cell(query_partition=0, write_partition=0)
_KINDS: Final = {kind.value: kind for kind in WriteKind}


class LazyImage(AfterImage):
    """AfterImage whose documents are decoded at their first use."""

    __slots__ = ("_after", "_before")

    _after: Document | bytes | None
    _before: Document | bytes | None

    @property
    def after(self) -> Document | None:
        if type(self._after) is bytes:
            object.__setattr__(self, "_after", bson.decode(self._after, BSON_OPTIONS))
        return self._after  # type: ignore[return-value]

    @after.setter
    def after(self, document: Document | bytes | None) -> None:
        object.__setattr__(self, "_after", document)

    @property
    def before(self) -> Document | None:
        if type(self._before) is bytes:
            object.__setattr__(self, "_before", bson.decode(self._before, BSON_OPTIONS))
        return self._before  # type: ignore[return-value]

    @before.setter
    def before(self, document: Document | bytes | None) -> None:
        object.__setattr__(self, "_before", document)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AfterImage):
            return NotImplemented
        return _image_fields(self) == _image_fields(other)

    __hash__ = None  # type: ignore[assignment]


def _setter(owner: type, name: str) -> Callable[[AfterImage, Any], None]:
    setter: Callable[[AfterImage, Any], None] = owner.__dict__[name].__set__
    return setter


_NEW_IMAGE: Final = object.__new__
_SET_NAMESPACE: Final = _setter(AfterImage, "namespace")
_SET_KIND: Final = _setter(AfterImage, "kind")
_SET_VERSION: Final = _setter(AfterImage, "version")
_SET_KEY: Final = _setter(AfterImage, "key")
_SET_AFTER: Final = _setter(LazyImage, "_after")
_SET_AFTER_EXACT: Final = _setter(AfterImage, "after_exact")
_SET_BEFORE: Final = _setter(LazyImage, "_before")
_SET_BEFORE_KNOWN: Final = _setter(AfterImage, "before_known")
_SET_CHANGED: Final = _setter(AfterImage, "changed")
_SET_WALL_MS: Final = _setter(AfterImage, "wall_ms")


def _image_fields(image: AfterImage) -> tuple[Any, ...]:
    return tuple(getattr(image, name) for name in AfterImage.__dataclass_fields__)


def encode_image(image: AfterImage) -> bytes:
    """Return the payload of an image. O(size of the documents); a RawBSONDocument is copied, not walked.

    Raises EventLayerError if the image is not BSON.
    """
    fields: dict[str, Any] = {
        "v": FORMAT, "t": "i", "k": image.kind.value, "ns": image.namespace, "ver": image.version, "w": image.wall_ms,
        "key": image.key, "f": image.after_exact * AFTER_EXACT | image.before_known * BEFORE_KNOWN,
    }  # fmt: skip
    try:
        if image.after is not None:
            fields["a"] = _document_bytes(image.after)
        if image.before is not None:
            fields["b"] = _document_bytes(image.before)
        if image.changed is not None:
            fields["p"] = list(image.changed)
        return bson.encode(fields, codec_options=BSON_OPTIONS)
    except (BSONError, TypeError, ValueError, OverflowError) as error:
        raise EventLayerError(f"an image of {image.namespace} is not BSON: {error}", retryable=False) from error


def _document_bytes(document: Document) -> bytes:
    if isinstance(document, RawBSONDocument):
        return bytes(document.raw)
    return bson.encode(document, codec_options=BSON_OPTIONS)


def decode_image(payload: bytes) -> AfterImage:
    """Return the image in a payload. The cost is independent of the documents' size: they are decoded on first access.

    Raises EventLayerError.
    """
    return decode_payload(payload, _image, types="i")


def _image(fields: Fields) -> AfterImage:
    """Return an image. Every cell decodes every write here, so the fields are set without the dataclass' constructor."""
    flags = fields["f"]
    changed = fields.get("p")
    image: LazyImage = _NEW_IMAGE(LazyImage)
    _SET_NAMESPACE(image, fields["ns"])
    _SET_KIND(image, _KINDS[fields["k"]])
    _SET_VERSION(image, int(fields["ver"]))
    _SET_KEY(image, fields["key"])
    _SET_AFTER(image, fields.get("a"))
    _SET_AFTER_EXACT(image, flags & AFTER_EXACT != 0)
    _SET_BEFORE(image, fields.get("b"))
    _SET_BEFORE_KNOWN(image, flags & BEFORE_KNOWN != 0)
    _SET_CHANGED(image, None if changed is None else tuple(changed))
    _SET_WALL_MS(image, int(fields["w"]))
    return image


def encode_query_event(message: Registration | Cancellation | Usage) -> bytes:
    """Return the payload of an event on a query pipeline.

    Raises UnsupportedQueryError if a filter holds a value without a BSON form independent of the client.
    """
    if isinstance(message, Cancellation):
        fields: dict[str, Any] = {
            "v": FORMAT, "t": "c", "tenant": message.tenant, "qid": message.query_id,
            "ids": list(message.registration_ids),
        }  # fmt: skip
    elif isinstance(message, Usage):
        fields = {
            "v": FORMAT, "t": "u", "tenant": message.tenant,
            "q": [*map(list, message.queries)], "r": [*map(list, message.registrations)],
        }  # fmt: skip
    else:
        fields = {
            "v": FORMAT, "t": "r", "id": message.id, "tenant": message.tenant, "qid": message.query_id,
            "since": message.since, "at": message.read_at, "exp": message.expires_at_ms,
            "query": query_fields(message.query),
        }  # fmt: skip
        if message.members is not None:
            fields["members"] = list(message.members)
        if message.last is not None:
            fields["last"] = message.last
        if (by := message.contributors) is not None:
            fields["by"] = {"ver": by.version, "records": list(by.records), "all": by.complete}
            if by.digests:
                fields["by"]["shown"] = list(by.digests)
            if by.placed:
                fields["by"]["placed"] = True
        if message.watch is not None:
            fields["watch"] = list(message.watch)
    try:
        return bson.encode(fields, codec_options=BSON_OPTIONS)
    except (BSONError, TypeError, ValueError, OverflowError) as error:
        raise UnsupportedQueryError(f"a value in the query has no unambiguous BSON form: {error}") from error


def decode_query_event(payload: bytes) -> Registration | Cancellation | Usage:
    """Return the event in a payload from a query pipeline. Raises EventLayerError if there is none."""
    return decode_payload(payload, _query_event, types="rcu")


def _query_event(fields: Fields) -> Registration | Cancellation | Usage:
    if fields["t"] == "c":
        return Cancellation(tenant=fields["tenant"], query_id=fields["qid"], registration_ids=tuple(fields["ids"]))
    if fields["t"] == "u":
        return Usage(tenant=fields["tenant"], queries=_counts(fields["q"]), registrations=_counts(fields["r"]))
    members = fields.get("members")
    return Registration(
        id=fields["id"],
        tenant=fields["tenant"],
        query_id=fields["qid"],
        query=query_of(fields["query"]),
        since=int(fields["since"]),
        read_at=int(fields["at"]),
        members=None if members is None else tuple(members),
        last=fields.get("last"),
        expires_at_ms=int(fields["exp"]),
        contributors=_contributors(fields["by"]) if "by" in fields else None,
        watch=ClockWatch(*map(int, fields["watch"])) if "watch" in fields else None,
    )


def _contributors(fields: Fields) -> Contributors:
    records = tuple(fields["records"])
    if not all(isinstance(record, Mapping) and "_id" in record for record in records):
        raise ValueError("a contributing record without an _id")
    digests = tuple(fields.get("shown", ()))
    if digests and (len(digests) != len(records) or not all(isinstance(digest, bytes) for digest in digests)):
        raise ValueError("not a digest for each contributing record")
    return Contributors(
        version=int(fields["ver"]),
        records=records,
        complete=fields["all"] is True,
        digests=digests,
        placed=fields.get("placed") is True,
    )


def _counts(pairs: Any) -> tuple[tuple[str, int], ...]:
    return tuple((str(name), int(count)) for name, count in pairs)


def encode_notification(notification: Notification) -> bytes:
    """Return the payload of a notification."""
    cell = _cell_of(notification)
    fields: dict[str, Any] = {"v": FORMAT, "t": "", "cell": [cell.query_partition, cell.write_partition]}
    match notification:
        case Activated():
            fields |= {"t": "+", "id": notification.registration_id, "rate": notification.write_rate_hz}
        case Renewed():
            fields |= {"t": "+", "id": notification.registration_id, "rate": 0.0, "ren": True}
        case Refused():
            fields |= {"t": "-", "id": notification.registration_id, "reason": notification.reason}
        case Invalidated():
            fields |= {
                "t": "!", "ids": list(notification.registration_ids), "qid": notification.query_id,
                "m": notification.match_type.value, "ver": notification.version, "key": notification.key,
                "w": notification.written_at_ms,
            }  # fmt: skip
            if notification.exact:
                fields["x"] = True
            if notification.certain:
                fields["sure"] = True
            if isinstance(notification.source, OutsideGrid):
                fields["src"] = notification.source.value
        case Heartbeat():
            fields |= {
                "t": "h", "shape": encode_shape(notification.shape),
                "now": notification.at_ms, "fresh": notification.fresh_as_of_ms, "ver": notification.watermark,
                "regs": notification.registrations, "writes": notification.writes,
            }  # fmt: skip
            if notification.matched:
                fields["done"] = notification.matched
    return bson.encode(fields, codec_options=BSON_OPTIONS)


def _cell_of(notification: Notification) -> Cell:
    """Return the cell of a notification. Earlier releases read a cell in each, so notifications without one name the first."""
    if isinstance(notification, Renewed):
        return _FIRST_CELL
    if not isinstance(notification, Invalidated):
        return notification.cell
    return notification.source if isinstance(notification.source, Cell) else _FIRST_CELL


def decode_notification(payload: bytes) -> Notification:
    """Return the notification in a payload. Raises EventLayerError if there is none."""
    return decode_payload(payload, _notification, types="+-!h")


def _notification(fields: Fields) -> Notification:
    query_partition, write_partition = fields["cell"]
    cell = Cell(query_partition=query_partition, write_partition=write_partition)
    match fields["t"]:
        case "+":
            if fields.get("ren") is True:
                return Renewed(registration_id=str(fields["id"]))
            return Activated(registration_id=fields["id"], cell=cell, write_rate_hz=fields["rate"])
        case "-":
            return Refused(registration_id=fields["id"], cell=cell, reason=fields["reason"])
        case "!":
            return Invalidated(
                registration_ids=tuple(fields["ids"]),
                query_id=fields["qid"],
                match_type=MatchType(fields["m"]),
                version=int(fields["ver"]),
                key=fields["key"],
                written_at_ms=int(fields["w"]),
                source=OutsideGrid(fields["src"]) if "src" in fields else cell,
                exact=bool(fields.get("x", False)),
                certain=bool(fields.get("sure", False)),
            )
    return Heartbeat(
        cell=cell,
        shape=decode_shape(fields["shape"]),
        at_ms=int(fields["now"]),
        fresh_as_of_ms=int(fields["fresh"]),
        watermark=int(fields["ver"]),
        registrations=int(fields["regs"]),
        writes=int(fields["writes"]),
        matched=int(fields.get("done", 0)),
    )


def type_of(payload: bytes) -> bytes | None:
    """Return the type of a payload, one letter, without decoding it; None if it does not begin like a payload."""
    head = payload[_TYPE_AT]
    return head[7:8] if head[:7] == _HEAD else None


def decode_payload(payload: bytes, build: Callable[[Fields], T], *, types: str | None = None) -> T:
    """Return the message that `build` makes of a payload's fields.

    types: the only types that are passed to it.

    Raises EventLayerError if the payload has another format or type, or is unreadable.
    """
    try:
        fields = bson.decode(payload, BSON_OPTIONS)
        if fields.get("v") != FORMAT:
            raise EventLayerError(
                f"a payload has format {fields.get('v')!r}, but this process reads format {FORMAT}; "
                "run the same release everywhere in a deployment",
                retryable=False,
            )
        if types is not None and fields.get("t", "none") not in types:
            raise EventLayerError(
                f"a payload has type {fields.get('t')!r} where one of {types!r} belongs", retryable=False
            )
        return build(fields)
    except (BSONError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EventLayerError(f"a payload of {len(payload)} bytes is unreadable: {error!r}", retryable=False) from error


def plain(value: Any) -> Any:
    """Return a value of a lazily decoded document as every other part decodes it."""
    return bson.decode(value.raw, BSON_OPTIONS) if isinstance(value, RawBSONDocument) else value
