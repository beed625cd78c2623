"""Files of the page: read once, packed once, served from memory. The files contain no data of an app, and need no token."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quaestor.middleware.interface import Send
from quaestor.middleware.sketch_snapshot import acceptable
from quaestor.read_path.validation import none_match_fails, strong_etag

FOLDER: Final = Path(__file__).parent / "assets"
_KINDS: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
GUARDED: Final = [
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


@dataclass(frozen=True, slots=True)
class Asset:
    """File of the page."""

    kind: bytes
    body: bytes
    packed: bytes
    etag: bytes


class Assets:
    """Files of the page, by their paths below the dashboard's path; "/" is the page."""

    def __init__(self) -> None:
        self._files = {
            f"/{path.relative_to(FOLDER).as_posix()}": _asset(path)
            for path in FOLDER.rglob("*")
            if path.suffix in _KINDS
        }
        self._files["/"] = self._files.pop("/index.html")

    def __contains__(self, path: str) -> bool:
        return path in self._files

    async def __call__(self, path: str, scope: Mapping[str, Any], send: Send) -> None:
        asset = self._files[path]
        headers = [
            (b"content-type", asset.kind),
            (b"cache-control", b"private, no-cache"),
            (b"etag", asset.etag),
            (b"vary", b"accept-encoding"),
            *GUARDED,
        ]
        held = [value for name, value in scope["headers"] if name == b"if-none-match"]
        if held and none_match_fails(b", ".join(held), asset.etag):
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            return await send({"type": "http.response.body", "body": b""})
        packed = b"gzip" in acceptable(scope["headers"])
        body = asset.packed if packed else asset.body
        if packed:
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        return await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})


def _asset(path: Path) -> Asset:
    body = path.read_bytes()
    return Asset(_KINDS[path.suffix], body, gzip.compress(body, mtime=0), strong_etag(body))
