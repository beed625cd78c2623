"""Problem details (RFC 9457), the answers of admin API and proxy to failures: an HTTP status and a sentence, never stored.

The REST router has its own (`quaestor.rest.problems`), with types for programs and places in the request.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def problem(
    send: Send,
    status: int,
    detail: str,
    *,
    headers: list[tuple[bytes, bytes]] | None = None,
    head: bool = False,
    close: bool = False,
) -> None:
    """Send problem details.

    detail: a sentence for the client; nothing about the inside of the network.
    head: whether the request was a HEAD, whose answer has no body.
    close: whether the connection cannot be used again.
    """
    body = json.dumps(
        {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail},
        ensure_ascii=False,
    ).encode()
    fields = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *(headers or ()),
    ]
    if close:
        fields.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": b"" if head else body})
