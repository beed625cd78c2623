"""Endpoints of the browser client: service worker and page module, served by the middleware.

`QuaestorMiddleware(app, quaestor=quaestor, browser_client=BrowserClient(handles=["/api/"], inject=True))`. With `inject`, pages
receive the line that registers the worker (`middleware/page_script.py`). See docs/browser_client.md.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from quaestor.errors import ConfigurationError
from quaestor.middleware.interface import Engine, Send
from quaestor.middleware.sketch_snapshot import acceptable
from quaestor.read_path.validation import none_match_fails, strong_etag

_BUILT = Path(__file__).parent / "browser"
"""Built by `make browser-client`."""
_FILES = ("client.js", "long_digest.js", "register.js", "worker.js")
_SWITCHED_OFF = b"/* switched off */"
_SKETCH = "/quaestor/sketch"
"""Path of the sketch for a worker whose rules name no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserClient:
    """Parts of the browser client that a middleware serves. Raises ConfigurationError for malformed paths.

    path: prefix under which `worker.js`, `client.js`, `long_digest.js` and `register.js` are served; they hide files of the app
        with the same paths.
    handles: prefixes of the paths that pages read through the worker; empty: all.
    leaves: prefixes of paths that the worker leaves to the network.
    offline: while the network fails, the worker serves old answers and marks them as old.
    inject: HTML pages receive the line that registers the worker.
    """

    path: str = "/quaestor"
    handles: Sequence[str] = ()
    leaves: Sequence[str] = ()
    offline: bool = False
    inject: bool = False

    def __post_init__(self) -> None:
        for name in ("handles", "leaves"):
            if isinstance(getattr(self, name), str):
                raise ConfigurationError(f"{name} = {getattr(self, name)!r}: write a list of paths, not one path")
        for path in (self.path, *self.handles, *self.leaves):
            if not path.startswith("/") or set(path) & set("?#\\ "):
                raise ConfigurationError(f"{path!r} is not the beginning of a path: it starts with / and has no query")

    def rules(self, *, sketch_path: str) -> str:
        """Return the rules as the query of the worker's URL, with its `?`; empty if there are no rules."""
        rules = [("handles", path) for path in self.handles] + [("not", path) for path in self.leaves]
        if self.offline:
            rules.append(("offline", "1"))
        if sketch_path != _SKETCH:
            rules.append(("sketch", sketch_path))
        return f"?{urlencode(rules)}" if rules else ""


class ClientFiles:
    """The built files by path. While clients are switched off, the worker is replaced by a worker that does nothing."""

    def __init__(self, declared: BrowserClient, engine: Engine) -> None:
        base = declared.path.rstrip("/")
        off = engine.settings.sketch.sketch_off
        self._bodies = {f"{base}/{name}": (_BUILT / name).read_bytes() for name in _FILES}
        if off:
            self._bodies[f"{base}/worker.js"] = (_BUILT / "noop_worker.js").read_bytes()
            self._bodies[f"{base}/register.js"] = _SWITCHED_OFF
        self._packed = {path: gzip.compress(body, mtime=0) for path, body in self._bodies.items()}

    def __contains__(self, path: str) -> bool:
        return path in self._bodies

    async def __call__(self, path: str, scope: Mapping[str, Any], send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            return await _answer(send, 405, [(b"allow", b"GET, HEAD"), (b"content-length", b"0")], b"")
        packed = b"gzip" in acceptable(scope["headers"])
        body = (self._packed if packed else self._bodies)[path]
        etag = strong_etag(body)
        headers = [
            (b"content-type", b"text/javascript; charset=utf-8"),
            (b"cache-control", b"public, max-age=0, must-revalidate"),
            (b"etag", etag),
            (b"vary", b"accept-encoding"),
            (b"x-content-type-options", b"nosniff"),
            # The script lies below `path`; the pages that it serves lie above.
            (b"service-worker-allowed", b"/"),
        ]
        held = [value for name, value in scope["headers"] if name == b"if-none-match"]
        if held and none_match_fails(b", ".join(held), etag):
            return await _answer(send, 304, headers, b"")
        if packed:
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-length", b"%d" % len(body)))
        return await _answer(send, 200, headers, body if scope["method"] == "GET" else b"")


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
