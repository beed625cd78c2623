"""Answers to reads, with their entity tag."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from quaestor.read_path.validation import none_match_fails
from quaestor.rest.bodies import JSON


def readable(request: Request, body: bytes, etag: str) -> Response:
    """Return a response with the body, or 304 if the client has it."""
    if_none_match = request.headers.get("if-none-match")
    if if_none_match is not None and none_match_fails(if_none_match.encode("latin-1"), etag.encode()):
        return Response(status_code=304, headers={"etag": etag})
    return Response(body, media_type=JSON, headers={"etag": etag})
