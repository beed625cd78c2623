"""Answers about pages: JSON with an entity tag, and the lifetime of each kind."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from quaestor.errors import ConfigurationError
from quaestor.read_path.validation import none_match_fails, strong_etag

YEAR_S: Final = 31_536_000
_JSON: Final = "application/json"
_PROBLEM: Final = "application/problem+json"


def answered(request: Request, body: str, lifetime: str) -> Response:
    """Return an answer, or 304 if the client has it.

    lifetime: value of `Cache-Control`; empty: the cache around the application decides.
    """
    content = body.encode()
    etag = strong_etag(content)
    headers = {"etag": etag.decode("latin-1"), "x-content-type-options": "nosniff"}
    if lifetime:
        headers["cache-control"] = lifetime
    held = request.headers.getlist("if-none-match")
    if held and none_match_fails(", ".join(held).encode("latin-1"), etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_JSON, headers=headers)


def problem(status: int, detail: str) -> Response:
    """Return a problem (RFC 9457). Caches never store a problem."""
    content = json.dumps({"title": _TITLES[status], "status": status, "detail": detail})
    return Response(content, status_code=status, media_type=_PROBLEM, headers=_FIELDS.get(status, _UNSTORED))


def problem_of(error: Exception) -> Response:
    """Return the problem of a source's error."""
    if isinstance(error, ConfigurationError):
        return problem(404, "there are no results of this name")
    return problem(503, "the results cannot be read at present")


_TITLES: Final[dict[int, str]] = {
    400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 503: "Service Unavailable",
}  # fmt: skip
_UNSTORED: Final[dict[str, Any]] = {"cache-control": "no-store"}
_FIELDS: Final = {429: {**_UNSTORED, "retry-after": "1"}, 503: {**_UNSTORED, "retry-after": "1"}}
