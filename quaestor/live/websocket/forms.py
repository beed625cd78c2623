"""Forms of records on the wire, one for each subprotocol."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import bson
from bson import ObjectId

from quaestor.rest import strict_json
from quaestor.rest.identifiers import format_id

_SIZE_BYTES: Final = 4
"""Size of the field at the beginning of a BSON document that holds the size of the document."""


@dataclass(frozen=True, slots=True)
class RecordForm:
    """Form of records on the wire.

    record: a record as it is sent, from the name of its collection and the record.
    binary: whether messages with records are BSON, each in a binary frame. All other messages are JSON.
    """

    record: Callable[[str, Any], Any]
    binary: bool = False


def _whole(bucket: str, record: Any) -> Any:
    """The record as the REST router gives it."""
    return record


def _orestes(bucket: str, record: Any) -> Any:
    """The record as in the thesis: `id`, `version`, `acl`, `createdAt`, `updatedAt`, then its own fields.

    A record without these fields has null in their places, `createdAt` from its ObjectId.
    """
    if not isinstance(record, Mapping) or "_id" not in record:
        return record
    key = record.get("_id")
    created = record.get("createdAt")
    if created is None and isinstance(key, ObjectId):
        created = key.generation_time.isoformat().replace("+00:00", "Z")
    head = {
        "id": f"/db/{bucket}/{format_id(key)}",
        "version": record.get("version"),
        "acl": record.get("_acl"),
        "createdAt": created,
        "updatedAt": record.get("updatedAt"),
    }
    return head | {name: value for name, value in record.items() if name not in head and name not in ("_id", "_acl")}


EXTENDED_JSON: Final = RecordForm(_whole)
FORMS: Final[Mapping[str, RecordForm]] = {
    "quaestor.v1": EXTENDED_JSON,
    "quaestor.v1.bson": RecordForm(_whole, binary=True),
    "orestes.v1": RecordForm(_orestes),
}
"""Forms by subprotocol, the default first."""


def encoded(value: Any) -> str:
    """Value as JSON text."""
    return strict_json.dumps(value).decode()


def bson_end(fields: Mapping[str, Any]) -> bytes:
    """End of a BSON document: these fields, without the size of the document. Several documents may share it."""
    return bson.encode(fields)[_SIZE_BYTES:]


def bson_head(fields: Mapping[str, Any], end: bytes) -> bytes:
    """Beginning of the BSON document that has these fields, then the end."""
    beginning = bson.encode(fields)[_SIZE_BYTES:-1]
    return struct.pack("<i", _SIZE_BYTES + len(beginning) + len(end)) + beginning
