"""Server-sent events (WHATWG HTML, section 9.2): the bytes of a stream, and the requests that want one."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable

from quaestor.live.answers import FollowedAnswer

MEDIA_TYPE = b"text/event-stream"
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", MEDIA_TYPE + b"; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    # nginx buffers answers otherwise; compressing middlewares leave an encoded answer alone, and would hold events back.
    (b"x-accel-buffering", b"no"),
    (b"content-encoding", b"identity"),
    (b"vary", b"accept"),
)
HEARTBEAT = b":\n\n"
UNCHANGED = b": unchanged\n\n"
_TEXT = ("application/json", "application/javascript", "application/xml", "application/x-ndjson", "image/svg+xml")


def wants_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request asks for a stream of events. A list of media types that puts another one first does not."""
    return any(
        name == b"accept" and value.lstrip().lower().startswith(MEDIA_TYPE) and _weighs(value)
        for name, value in headers
    )


def wants_nothing_else(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a stream of events is all that a request accepts, as an EventSource."""
    accepted = [value for name, value in headers if name == b"accept"]
    return len(accepted) == 1 and b"," not in accepted[0] and wants_stream([(b"accept", accepted[0])])


def wants_patches(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request asks for JSON Patches: `Accept: text/event-stream; patch=json`."""
    return any(name == b"accept" and b"patch=json" in value.lower().replace(b" ", b"") for name, value in headers)


def last_event_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The entity tag of the last answer that the client received; empty: of none. Clients send it in UTF-8."""
    value = next((value for name, value in headers if name == b"last-event-id"), b"")
    try:
        return value.decode("utf-8").encode("latin-1")
    except UnicodeError:
        return value


def retry(after_ms: int) -> bytes:
    """The line by which a client waits so long before it connects again."""
    return b"retry: %d\n\n" % after_ms


def whole(answer: FollowedAnswer) -> tuple[bytes, str]:
    """The event of a whole answer, and its kind: the body as text, or `base64` where the body is no text."""
    kind = answer.content_type()
    encoded = any(name.lower() == b"content-encoding" for name, _ in answer.headers)
    lines = None if encoded else _lines(answer.body, kind)
    if answer.status != 200:
        text = b"" if lines is None else b"\n".join(lines)
        status = json.dumps({"status": answer.status, "body": text.decode()}, ensure_ascii=False)
        return event([status.encode()], name=b"status", etag=answer.etag), "status"
    if lines is None:
        return event([b64encode(answer.body)], name=b"base64", etag=answer.etag), "base64"
    return event(lines, etag=answer.etag), "whole"


def patched(patch: bytes, etag: bytes) -> bytes:
    """The event of a JSON Patch (RFC 6902), which makes the answer before it this one."""
    return event([patch], name=b"patch", etag=etag)


def end(reason: str, status: int) -> bytes:
    """The last event of a stream: why it ends."""
    said: dict[str, object] = {"reason": reason}
    if status:
        said["status"] = status
    return event([json.dumps(said).encode()], name=b"end")


def event(lines: Iterable[bytes], *, name: bytes = b"", etag: bytes = b"") -> bytes:
    """The bytes of one event; an empty name is `message`."""
    parts = []
    if name:
        parts.append(b"event: %s\n" % name)
    if etag:
        parts.append(b"id: %s\n" % etag.decode("latin-1").encode())
    parts += [b"data: %s\n" % line for line in lines]
    return b"".join(parts) + b"\n"


def _lines(body: bytes, kind: str) -> list[bytes] | None:
    """The lines of a text in UTF-8; None: it is no such text, or its line ends would change on the way."""
    json_text = kind == "application/json" or kind.endswith("+json")
    if not (json_text or kind.startswith("text/") or kind in _TEXT):
        return None
    if b"\r" in body:
        if not json_text:
            return None
        body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")  # between values: a text in JSON holds none
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return body.split(b"\n")


def _weighs(value: bytes) -> bool:
    """Whether the first media type of an Accept field has a weight other than 0."""
    first = value.partition(b",")[0].replace(b" ", b"").lower()
    return not (first.endswith((b";q=0", b";q=0.0", b";q=0.00", b";q=0.000")))
