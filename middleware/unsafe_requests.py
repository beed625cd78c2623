"""Unsafe requests: entries that their answers make stale are dropped before the answer is sent (RFC 9111, section 4.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from quaestor.middleware.headers import CACHE
from quaestor.middleware.interface import Scope, Send
from quaestor.read_path import unsafe_invalidation
from quaestor.read_path.key import target
from quaestor.read_path.service import ReadPath

_BY_METHOD = (b"cache-status", b"%s; fwd=method" % CACHE)
"""Cache-Status of an answer whose method no entry can answer (RFC 9211, section 2.2)."""


def outdating(read_path: ReadPath, scope: Scope, send: Send) -> Send:
    """Return a `send` for a request whose method no entry can answer; it adds that as Cache-Status. Entries that the answer makes
    stale are outdated before it is sent.

    Safe methods and errors cost nothing more; other answers cost a look at their fields.
    """

    async def send_outdating(message: Any) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            if scope["method"] not in unsafe_invalidation.SAFE:
                fields = [(bytes(name).lower(), bytes(value)) for name, value in given]
                if read_path.process.settings.lifetimes.explicit or any(
                    name == b"cache-group-invalidation" for name, _ in fields
                ):
                    await _outdate(read_path, scope, message["status"], fields)
            message = {**message, "headers": [*given, _BY_METHOD]}
        await send(message)

    return send_outdating


async def _outdate(read_path: ReadPath, scope: Scope, status: int, fields: list[tuple[bytes, bytes]]) -> None:
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    path = scope.get("raw_path") or scope["path"].encode()
    outdated_target = target(scope["scheme"], hosts[0] if len(hosts) == 1 else b"", path, scope["query_string"])
    if outdated_target is None or len(hosts) > 1:
        return
    what = unsafe_invalidation.outdated(scope["method"], status, fields, outdated_target)
    if not read_path.process.settings.lifetimes.explicit:
        what = replace(what, keys=())  # guarded entries die by their registrations
    if what:
        await read_path.explicit.outdate(what, url_origin=unsafe_invalidation.origin(outdated_target.key))
