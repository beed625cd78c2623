"""One line of script in an application's HTML pages, where their Content Security Policy allows it.

The app inside the cache adds it, so a cached page is changed once. Bodies that are compressed, streamed, partial or not HTML
stay as they are. The same holds for answers with `no-transform`, or with a digest of their bytes.

A page may hold text of strangers. Only its first EXAMINED_BYTES are read, in linear time. A longer page is changed if its head
ends within them.
"""

from __future__ import annotations

import html
import re

from quaestor.middleware.interface import App, Message, RawHeaders, Receive, Scope, Send

_HEAD = re.compile(
    rb"(?:\xef\xbb\xbf)?(?>\s+|<!--(?>.*?-->))*+<!doctype\s[^>]*>(?>\s+|<!--(?>.*?-->))*+"
    rb"(?:<html(?:\s[^>]*)?>)?(?>\s+|<!--(?>.*?-->))*+<head(?:\s[^>]*)?>",
    re.IGNORECASE | re.DOTALL,
)
"""Matches up to the end of the tag that opens the head; only comments and white space may stand between the tags."""
_POLICY_IN_PAGE = re.compile(rb"http-equiv\s*+=\s*+[\"']?+\s*+content-security-policy", re.IGNORECASE)
_HEAD_ENDS = re.compile(rb"</head[\s>]|<body[\s>]", re.IGNORECASE)
EXAMINED_BYTES = 65_536
"""The part of a page that is searched for the end of its head, and for a policy in it."""
_NONCE = re.compile(r"'nonce-([A-Za-z0-9+/_=-]+)'")
_OF_THE_BYTES = frozenset(
    {b"content-encoding", b"content-range", b"content-md5", b"digest", b"content-digest", b"repr-digest", b"signature"}
)
_SCRIPTS = ("script-src-elem", "script-src", "default-src")
_WORKERS = ("worker-src", "child-src")


class PageScript:
    """The application, with a script in its pages.

    path: of the script, without the prefix that the application is mounted at.
    query: of its URL, with the `?`.
    """

    def __init__(self, app: App, *, path: str, query: str) -> None:
        self._app = app
        self._path, self._query = path, query

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return await self._app(scope, receive, send)
        source = scope.get("root_path", "") + self._path + self._query
        return await self._app(scope, receive, _Page(send, source, head=scope["method"] == "HEAD"))


class _Page:
    """One answer on its way out; its start is held back until its body shows whether it can be changed."""

    def __init__(self, send: Send, source: str, *, head: bool) -> None:
        self._send, self._source, self._head = send, source, head
        self._start: Message | None = None
        self._nonce = ""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            nonce = permitted(message["headers"]) if changeable(message["status"], message["headers"]) else None
            if nonce is not None:
                self._nonce = nonce
                if self._head:  # the length of the changed page is unknown
                    message["headers"] = [
                        field for field in message["headers"] if field[0].lower() != b"content-length"
                    ]
                else:
                    self._start = message
                    return
        elif self._start is not None:
            start, self._start = self._start, None
            if message["type"] == "http.response.body":
                self._change(start, message)
            await self._send(start)
        await self._send(message)

    def _change(self, start: Message, message: Message) -> None:
        body = message.get("body", b"")
        length = [value for name, value in start["headers"] if name.lower() == b"content-length"]
        if message.get("more_body", False) and length != [b"%d" % len(body)]:
            return
        opened = head_opens(body)
        if opened is None:
            return
        nonce = f' nonce="{html.escape(self._nonce)}"' if self._nonce else ""
        line = f'<script type="module" src="{html.escape(self._source)}"{nonce}></script>'.encode()
        message["body"] = body[:opened] + line + body[opened:]
        if length:
            start["headers"] = [
                (name, b"%d" % len(message["body"])) if name.lower() == b"content-length" else (name, value)
                for name, value in start["headers"]
            ]


def head_opens(page: bytes) -> int | None:
    """Return where the head of a page begins. None: no HTML, a policy in the page, or no end of the head within the limit.

    O(EXAMINED_BYTES), whatever the page holds.
    """
    opened = _HEAD.match(page, 0, EXAMINED_BYTES)
    if opened is None or _POLICY_IN_PAGE.search(page, 0, EXAMINED_BYTES):
        return None
    if len(page) > EXAMINED_BYTES and not _HEAD_ENDS.search(page, opened.end(), EXAMINED_BYTES):
        return None
    return opened.end()


def changeable(status: int, headers: RawHeaders) -> bool:
    """Whether an answer is an HTML page whose bytes may be changed."""
    fields = [(name.lower(), value) for name, value in headers]
    kinds = [value.split(b";")[0].strip().lower() for name, value in fields if name == b"content-type"]
    return (
        status == 200
        and kinds == [b"text/html"]
        and not any(name in _OF_THE_BYTES for name, _ in fields)
        and not any(name == b"cache-control" and b"no-transform" in value.lower() for name, value in fields)
    )


def permitted(headers: RawHeaders) -> str | None:
    """Return the nonce for a script of the page's own origin, empty if none is needed; None: the policies forbid the script."""
    policies = [
        policy
        for name, value in headers
        if name.lower() == b"content-security-policy"
        for policy in value.decode("latin-1").split(",")
        if policy.strip()
    ]
    directives = [_directives(policy) for policy in policies]
    script_sources = [_first(directive, _SCRIPTS) for directive in directives]
    if any(
        workers is not None and not _own(workers)
        for workers in (_first(directive, _WORKERS) for directive in directives)
    ):
        return None
    needed = [
        sources
        for sources in script_sources
        if sources is not None and (not _own(sources) or "'strict-dynamic'" in sources.lower())
    ]
    nonces = [set(_NONCE.findall(sources)) for sources in needed]
    if not needed:
        return ""
    return min(set.intersection(*nonces), default=None)


def _directives(policy: str) -> dict[str, str]:
    """Return directives by name; of several with one name the first counts (CSP level 3, section 2.2.1)."""
    directives: dict[str, str] = {}
    for piece in policy.split(";"):
        name, _, sources = piece.strip().partition(" ")
        directives.setdefault(name.lower(), sources.strip())
    return directives


def _first(directives: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((directives[name] for name in names if name in directives), None)


def _own(sources: str) -> bool:
    """Whether scripts of the page's own origin are among the sources."""
    return not {"'self'", "*"}.isdisjoint(sources.lower().split())
