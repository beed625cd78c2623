"""Forms of records on the wire, one for each subprotocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bson import ObjectId

from quaestor.rest import strict_json
from quaestor.rest.identifiers import format_id

RecordForm = Callable[[str, Any], Any]
"""A record as it is sent, from the name of its collection and the record."""


def extended_json(bucket: str, record: Any) -> Any:
    """The record as the REST router gives it."""
    return record


def orestes(bucket: str, record: Any) -> Any:
    """The record as in the thesis: `id`, `version`, `acl`, `createdAt`, `updatedAt`, then its own fields.

    A record without these fields has null in their places, `createdAt` from its ObjectId.
    """
    if not isinstance(record, Mapping):
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


FORMS: Final[Mapping[str, RecordForm]] = {"quaestor.v1": extended_json, "orestes.v1": orestes}
"""Forms by subprotocol, the default first."""


def encoded(value: Any) -> str:
    """Value as JSON text."""
    return strict_json.dumps(value).decode()
