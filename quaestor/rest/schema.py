"""OpenAPI description of the router: parameters, bodies, answers and errors of every operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from quaestor.rest import bodies, problems
from quaestor.rest.limits import Limits

RECORD: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "A record, as MongoDB Extended JSON (relaxed).",
    "properties": {"_id": {"description": "any BSON value except arrays and regular expressions"}},
    "additionalProperties": True,
}
_REASONS: Mapping[int, str] = {
    304: "The client already has the answer (If-None-Match).",
    400: "Malformed, too large or not allowed; with the position and the reason.",
    403: "Visible, but this caller may not change it.",
    404: "Missing, or hidden from this caller.",
    409: "A unique index already has this value; its fields are named only if the caller may read the other record.",
    412: "The precondition names another record.",
    413: "The body is too large.",
    415: "The body is of another media type.",
    422: "Not a record that can be stored.",
    428: "A precondition is required.",
    503: "The database is away or took too long; see Retry-After.",
}
_ETAG = {
    "description": "strong, from the record's BSON; only for callers with read access",
    "schema": {"type": "string"},
}
_LOCATION = {"description": "path of the record", "schema": {"type": "string"}}
_ID = (
    '24 lower-case hex digits: an ObjectId; an integer; `~` and Extended JSON: that value (`~"42"` is a string); everything '
    "else: that string. Slashes may be written as %2F."
)


def path_parameters(*names: str) -> list[dict[str, Any]]:
    """Return parameters in the path."""
    texts = {"collection": "name of the collection", "id": _ID}
    return [
        {"name": name, "in": "path", "required": True, "description": texts[name], "schema": {"type": "string"}}
        for name in names
    ]


def list_parameters(limits: Limits) -> list[dict[str, Any]]:
    """Return the parameters of a list in the query string."""

    def query(name: str, text: str, **schema: Any) -> dict[str, Any]:
        return {"name": name, "in": "query", "required": False, "description": text, "schema": schema}

    return [
        query(
            "filter", "MongoDB filter as Extended JSON, e.g. `{\"age\": {\"$gte\": 18}}`",
            type="string", maxLength=limits.filter_bytes,
        ),
        query("sort", "e.g. `{\"age\": -1}`; `_id` is always added", type="string", maxLength=limits.filter_bytes),
        query("skip", "number of records to leave out", type="integer", minimum=0, maximum=limits.skip, default=0),
        query(
            "limit", "how many at most", type="integer", minimum=1, maximum=limits.limit, default=limits.default_limit
        ),
        query("representation", "whole records, or only their ids", type="string", enum=["objects", "ids"]),
    ]  # fmt: skip


def condition_parameters(*names: str) -> list[dict[str, Any]]:
    """Return the header fields of preconditions."""
    texts = {
        "If-Match": "the record's ETag: act only if the record still has it",
        "If-None-Match": "`*`: act only if there is no such record yet",
    }
    return [
        {"name": name, "in": "header", "required": False, "description": texts[name], "schema": {"type": "string"}}
        for name in names
    ]


def record_answer(text: str, schema: Mapping[str, Any], *, location: bool = False) -> dict[str, Any]:
    """Return an answer with one record."""
    headers = {"ETag": _ETAG} | ({"Location": _LOCATION} if location else {})
    return {"description": text, "headers": headers, "content": {bodies.JSON: {"schema": schema}}}


def list_answer(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer with a list."""
    items = {"oneOf": [schema, {"description": "an `_id`, with representation=ids"}]}
    return {
        "description": "The records, or their ids, in order.",
        "headers": {"ETag": _ETAG},
        "content": {bodies.JSON: {"schema": {"type": "array", "items": items}}},
    }


def failures(statuses: Iterable[int]) -> dict[int | str, dict[str, Any]]:
    """Return answers with a problem document; 304 without."""
    return {
        status: {"description": _REASONS[status]}
        | ({"content": {problems.MEDIA_TYPE: {"schema": problems.SCHEMA}}} if status != 304 else {})
        for status in statuses
    }


def request_body(kinds: Iterable[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body of these media types."""
    operators = {"type": "object", "description": 'MongoDB update operators, e.g. `{"$inc": {"n": 1}}`'}
    patch = {"type": "object", "description": "JSON Merge Patch (RFC 7396): null removes a field"}
    schemas = {bodies.UPDATE: operators, bodies.MERGE_PATCH: patch}
    return {
        "required": True,
        "content": {kind: {"schema": schemas.get(kind, schema)} for kind in kinds},
    }
