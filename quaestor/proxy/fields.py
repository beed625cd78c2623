"""Header fields on their way through a proxy: RFC 9110, section 7.6, and RFC 7239, as pure functions.

Headers are raw (lower-case name, value) pairs; order and duplicates are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from email.utils import formatdate

RawHeaders = list[tuple[bytes, bytes]]

PSEUDONYM = b"quaestor"
"""Name of this proxy in `Via`."""
MAX_HOPS = 8
"""How often a request may pass a proxy of this kind before the request is taken to run in a circle."""

_HOP_BY_HOP = frozenset(
    {
        b"connection", b"http2-settings", b"keep-alive", b"proxy-authenticate", b"proxy-authentication-info",
        b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"upgrade",
    }
)  # fmt: skip
FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_ADDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto")
FORWARDED = frozenset(
    {
        b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-proto",
        b"x-forwarded-scheme", b"x-forwarded-server", b"x-forwarded-ssl", b"x-real-ip",
    }
)  # fmt: skip
CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NODE = re.compile(r"[0-9A-Za-z._\-]+")


def is_hop_by_hop(name: bytes) -> bool:
    """Whether a field belongs to one connection (RFC 9110, section 7.6.1). Each sender of a message decides its framing."""
    return name in _HOP_BY_HOP


def is_claim(name: bytes) -> bool:
    """Whether a field names the client behind the sender. Underscores in the name count as hyphens, as in some servers."""
    return name.replace(b"_", b"-") in FORWARDED


def without_named(headers: Iterable[tuple[bytes, bytes]], connection: Iterable[bytes]) -> RawHeaders:
    """Fields without the ones that these values of `Connection` name. Framing and Host cannot be removed in this way."""
    named = {piece.strip() for value in connection for piece in value.lower().split(b",")} - FRAMING - {b"host"}
    return [(name, value) for name, value in headers if name not in named]


def without_connection(headers: Sequence[tuple[bytes, bytes]]) -> RawHeaders:
    """Fields without the fields of one connection, framing excepted."""
    rest = without_named(headers, [value for name, value in headers if name == b"connection"])
    return [(name, value) for name, value in rest if name not in _HOP_BY_HOP]


def forwarded(headers: Iterable[tuple[bytes, bytes]], *, client: str | None, scheme: str, host: bytes) -> RawHeaders:
    """Fields with `Forwarded` and `X-Forwarded-For`, `-Host`, `-Proto`: they name to the origin the client, the host and the
    scheme.

    Existing fields are extended; of host and scheme the first proxy's values stay.
    """
    given = list(headers)
    before = {name: [value for field, value in given if field == name] for name in _ADDED}
    kept = [(name, value) for name, value in given if name not in _ADDED]
    node = client or "unknown"
    address = b'"[%s]"' % node.encode() if ":" in node else node.encode() if _NODE.fullmatch(node) else b"unknown"
    element = b"for=" + address
    if host:
        element += b';host="%s"' % host
    element += b";proto=" + scheme.encode("ascii")
    kept.append((b"forwarded", b", ".join([*before[b"forwarded"], element])))
    kept.append((b"x-forwarded-for", b", ".join([*before[b"x-forwarded-for"], node.encode("ascii", "replace")])))
    kept.append((b"x-forwarded-host", next(iter(before[b"x-forwarded-host"]), host)))
    kept.append((b"x-forwarded-proto", next(iter(before[b"x-forwarded-proto"]), scheme.encode("ascii"))))
    return kept


def via(before: Iterable[bytes], *, version: str) -> tuple[bytes, bytes]:
    """Value of `Via` with this hop at its end (section 7.6.3).

    version: HTTP version of the message as it was received.
    """
    return b"via", b", ".join([*before, b"%s %s" % (version.encode("ascii"), PSEUDONYM)])


def hops(before: Iterable[bytes]) -> int:
    """Number of times that values of `Via` name this kind of proxy."""
    return sum(piece.split()[1:2] == [PSEUDONYM] for value in before for piece in value.split(b","))


def response_fields(headers: Iterable[tuple[bytes, bytes]], *, status: int, version: str) -> RawHeaders:
    """Fields of an origin's answer as they are passed on. Their names are in lower case, fields of the connection to the origin
    are removed, and `Date` (section 6.6.1) and `Via` are present.

    Content-Length stays only where it gives the length of the body: not beside Transfer-Encoding, not on 204 and 304.
    Control characters in values become spaces (section 5.5).
    """
    fields = [(name.lower(), CONTROLS.sub(b" ", value)) for name, value in headers]
    coded = status in (204, 304) or any(name == b"transfer-encoding" for name, _ in fields)
    fields = [
        (name, value)
        for name, value in without_connection(fields)
        if name != b"transfer-encoding" and not (coded and name == b"content-length") and _TOKEN.fullmatch(name)
    ]
    if not any(name == b"date" for name, _ in fields):
        fields.append((b"date", http_date()))
    before = [value for name, value in fields if name == b"via"]
    return [*(field for field in fields if field[0] != b"via"), via(before, version=version)]


def interim_fields(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Fields of an interim answer (1xx) that are passed on."""
    kept = without_connection([(name.lower(), CONTROLS.sub(b" ", value)) for name, value in headers])
    return [(name, value) for name, value in kept if name not in FRAMING and _TOKEN.fullmatch(name)]


def http_date() -> bytes:
    """Present date (RFC 9110, section 5.6.7)."""
    return formatdate(usegmt=True).encode("ascii")
