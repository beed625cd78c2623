"""Problems of a request that cannot be answered: RFC 9457 problem details, with place and reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"
_TITLES: Mapping[int, str] = {
    400: "The request could not be understood",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    422: "The record was not accepted",
    428: "Precondition required",
    503: "Not available at the moment",
}
_DETAIL_CHARACTERS = 400

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "`urn:quaestor:problem:` and a name for programs"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "the fault, and the remedy"},
        "parameter": {"type": "string", "description": "the faulty query parameter; absent: the body"},
        "position": {"type": "integer", "description": "offset in that text, in characters, counted from 0"},
        "pointer": {"type": "string", "description": "the place in that JSON text, as an RFC 6901 pointer"},
    },
}


class Problem(Exception):  # noqa: N818 - an answer to the client, not a fault of the program
    """Problem that ends the request, and is its answer.

    status: the HTTP status.
    name: for programs, e.g. "filter-operator".
    detail: for people; cut to a few hundred characters.
    headers: of the answer.
    extra: further members (`parameter`, `position`, `pointer`).
    """

    def __init__(
        self, status: int, name: str, detail: str, *, headers: Mapping[str, str] | None = None, **extra: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.name = name
        self.detail = detail if len(detail) <= _DETAIL_CHARACTERS else detail[:_DETAIL_CHARACTERS] + "..."
        self.headers = dict(headers or {})
        self.extra = {key: value for key, value in extra.items() if value is not None}

    def response(self) -> Response:
        """Return the response that describes the problem."""
        document = {
            "type": f"urn:quaestor:problem:{self.name}",
            "title": _TITLES.get(self.status, "Failed"),
            "status": self.status,
            "detail": self.detail,
            **self.extra,
        }
        return Response(
            json.dumps(document).encode(), status_code=self.status, media_type=MEDIA_TYPE, headers=self.headers
        )


def not_found() -> Problem:
    """Return the common answer for missing things and for things that this caller must not know of."""
    return Problem(404, "not-found", "There is nothing here, or nothing that you may see.")
