"""Unsafe requests: what their answers make stale is gone before the client hears of them (RFC 9111, section 4.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from middleware.interface import Scope, Send
from quaestor.read_path import unsafe_invalidation
from quaestor.read_path.key import target
from quaestor.read_path.service import ReadPath


def outdating(read_path: ReadPath, scope: Scope, send: Send) -> Send:
    """The `send` of an unsafe request, which outdates what the answer makes stale before it is sent.

    Costs nothing for safe methods and errors; otherwise a look at the answer's fields.
    """

    async def told(message: Any) -> None:
        if message["type"] == "http.response.start" and scope["method"] not in unsafe_invalidation.SAFE:
            fields = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
            if read_path.settings.explicit or any(name == b"cache-group-invalidation" for name, _ in fields):
                await _outdate(read_path, scope, message["status"], fields)
        await send(message)

    return told


async def _outdate(read_path: ReadPath, scope: Scope, status: int, fields: list[tuple[bytes, bytes]]) -> None:
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    path = scope.get("raw_path") or scope["path"].encode()
    asked = target(scope["scheme"], hosts[0] if len(hosts) == 1 else b"", path, scope["query_string"])
    if asked is None or len(hosts) > 1:
        return
    what = unsafe_invalidation.outdated(scope["method"], status, fields, asked)
    if not read_path.settings.explicit:
        what = replace(what, keys=())  # what a write changes dies by its registrations
    if what:
        await read_path.explicit.outdate(what, url_origin=unsafe_invalidation.origin(asked.key))
