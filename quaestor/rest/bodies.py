"""Request bodies: read within a bound, of a known type, as a record or as a change of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import bson
from bson.errors import BSONError
from starlette.requests import Request

from quaestor.rest import strict_json
from quaestor.rest.identifiers import BadIdError, require_id
from quaestor.rest.limits import Limits
from quaestor.rest.problems import Problem
from quaestor.rest.record_acl import BadAclError, require_acl

JSON: Final = "application/json"
EXTENDED_JSON: Final = "application/ejson"
MERGE_PATCH: Final = "application/merge-patch+json"
UPDATE: Final = "application/vnd.quaestor.update+json"
RECORD_TYPES: Final = (JSON, EXTENDED_JSON)
PATCH_TYPES: Final = (MERGE_PATCH, JSON, UPDATE)
_DBREF: Final = frozenset({"$ref", "$id", "$db"})


def media_type(request: Request, known: tuple[str, ...]) -> str:
    """Return the media type of the body, one of the known ones. Raises Problem (415)."""
    text = request.headers.get("content-type", "")
    kind, _, parameters = text.partition(";")
    kind = kind.strip().lower()
    charset = parameters.replace(" ", "").replace('"', "").lower()
    encoded = request.headers.get("content-encoding", "identity").strip().lower()
    if kind not in known or charset not in ("", "charset=utf-8") or encoded != "identity":
        accepted = ", ".join(known)
        field = "accept-patch" if request.method == "PATCH" else "accept"
        raise Problem(
            415, "media-type", f"The body must be {accepted}, in UTF-8 and not compressed.", headers={field: accepted}
        )
    return kind


async def read_object(request: Request, limits: Limits) -> tuple[str, dict[str, Any]]:
    """The body's text and the object in it. Raises Problem: 413 too large, 400 not JSON, 422 not an object."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 15 or int(announced) > limits.body_bytes):
        raise _too_large(limits)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.body_bytes:
            raise _too_large(limits)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Problem(400, "body-malformed", "The body is not UTF-8.", position=error.start) from error
    try:
        value = strict_json.parse(text, depth=limits.body_depth)
    except strict_json.JsonError as error:
        raise Problem(400, "body-malformed", error.reason, position=error.position, pointer=error.pointer) from error
    if not isinstance(value, dict):
        raise unacceptable(text, "A record is a JSON object.", ())
    return text, value


def unacceptable(text: str, reason: str, pointer: tuple[str | int, ...], name: str = "record-malformed") -> Problem:
    """Return a Problem (422) with a place in the body."""
    error = strict_json.refusal(text, reason, pointer)
    return Problem(422, name, reason, position=error.position, pointer=error.pointer)


def require_names(text: str, document: Mapping[str, Any], below: tuple[str | int, ...] = ()) -> None:
    """Raise Problem (422) for field names that MongoDB could not address, or would take for operators."""

    def visit(value: Any, pointer: tuple[str | int, ...]) -> None:
        if not isinstance(value, Mapping):
            return
        reference = bool(pointer) and "$ref" in value and "$id" in value
        for name in value:
            if name.startswith("$") and not (reference and name in _DBREF):
                raise unacceptable(text, f"the name {name!r} begins with $", (*pointer, name))
            if "." in name:
                raise unacceptable(text, f"the name {name!r} contains a dot", (*pointer, name))

    strict_json.walk(document, visit, below)


def require_record(text: str, document: Mapping[str, Any], acl_field: str | None) -> None:
    """Raise Problem (422) for records that cannot or should not be stored: ids, names, rules."""
    require_names(text, document)
    if "_id" in document:
        try:
            require_id(document["_id"])
        except BadIdError as error:
            raise unacceptable(text, str(error), ("_id",)) from error
    require_rules(document, acl_field)
    require_bson(document)


def require_rules(document: Mapping[str, Any], acl_field: str | None) -> None:
    """Raise Problem (422) if the record's own rules are malformed."""
    if acl_field is not None and acl_field in document:
        try:
            require_acl(document[acl_field])
        except BadAclError as error:
            raise Problem(422, "record-rules", f"{acl_field} {error}", pointer=f"/{acl_field}") from error


def require_bson(document: Mapping[str, Any]) -> bytes:
    """Return the record as BSON. Raises Problem (422) if MongoDB cannot hold it."""
    try:
        return bson.encode(document)
    except (BSONError, OverflowError) as error:
        raise Problem(422, "record-malformed", f"Not a record that MongoDB can hold: {error}") from error


def _too_large(limits: Limits) -> Problem:
    return Problem(413, "body-too-large", f"The body is larger than {limits.body_bytes} bytes.")
