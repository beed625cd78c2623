"""The names of a request, made of its bytes: cache key, Cache Sketch resource, and the URL as the CDN saw it. Pure.

Servers and clients, in Python and in JavaScript, have to compute the same *resource*, so here is the full definition. All steps
work on the request target as it is sent on the wire (in browsers: `new URL(u).pathname` and `.search`), never on decoded text:

1. The target is cut at its first `?` into path and query; a `#` and what follows is not part of it. An empty path is `/`.
2. Each of the two is normalised (RFC 3986, section 6.2.2), byte by byte:
   - `%` and two hex digits: if they stand for an unreserved character (A-Z a-z 0-9 - . _ ~), that character; otherwise the
     same escape in upper case;
   - any other `%`: `%25`;
   - a character of A-Z a-z 0-9 - . _ ~ ! $ & ' ( ) * + , ; = : @ / ?: itself;
   - any other byte (text is UTF-8): its escape, in upper case.
3. The normalised query is split at `&`; empty pieces are dropped; the pieces are sorted by their name (what comes before
   the first `=`), by byte; pieces of the same name keep their order; they are joined with `&`.
4. resource = path, or path + `?` + query if the query is not empty.

The *cache key* is scheme + `://` + host + resource, with the host in lower case and without the scheme's default port. Dot
segments, `+` and letter case stay as they are. Two keys for one page cost a miss, but one key for two pages would be a fault.

The key also holds the `spelling` of a target whose escapes or order of parameters differ from the resource: one
resource, several keys. Handlers see the target as it was sent. Where the order is declared irrelevant (`sort_query`), they see
the parameters in the order of the resource, and there is one key.

Where parameters are ignored (`read_path.query`), key and resource come from the remaining query string. A client that requested
the whole URL computes another resource, which no server reports: its copy must be revalidated (`Target.own`). Everything else
that distinguishes answers (`read_path.variant_key`) is appended to the key after a `#`, which no resource contains.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

from quaestor.fast_init import fast_init

MAX_TARGET_BYTES = 8192
"""Longer request targets are not cached (RFC 9110, section 4.1, asks for at least 8,000)."""
_REMEMBERED_BYTES = 512
_REMEMBERED = 4096
_REMEMBERED_HOSTS = 256
_LONGEST_HOST = 512
"""Longer ones are malformed (_HOST), and are not remembered."""

_CANONICAL = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=:@/?]*")
_USUAL = re.compile(rb"/[A-Za-z0-9\-._~!$&'()*+,;=:@/]*(?:\?[A-Za-z0-9\-._~!$'()*+,;=:@/?]+)?")
_UNUSUAL = re.compile(rb"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/?]")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HOST = re.compile(rb"(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9_.\-]{1,253})(?::[0-9]{1,5})?")
_DEFAULT_PORTS = {"http": b":80", "https": b":443"}


@fast_init
@dataclass(frozen=True, slots=True)
class Target:
    """All names of the resource that one request asks for.

    key: in our stores.
    resource: in the Cache Sketch.
    url: as a CDN received it.
    own: the client computes the same resource from its URL. If not, no sketch will ever report a change of its copy, so the
        copy must be revalidated.
    """

    key: str
    resource: str
    url: str
    own: bool = True


def target(scheme: str, host: bytes, path: bytes, query: bytes, *, kept: bytes | None = None) -> Target | None:
    """Return the names of a request; None if it cannot be keyed safely (target too long, host malformed).

    Short targets are remembered (bounded); others cost O(size).

    path and query: raw, percent-encoded, as on the wire.
    kept: the part of the query that counts; None: all of it.
    """
    if kept is not None and kept != query:
        named = target(scheme, host, path, kept)
        if named is None or len(path) + len(query) > MAX_TARGET_BYTES:
            return None
        return Target(
            key=named.key,
            resource=named.resource,
            url=_url(scheme, host, path, query),
            own=resource(path, query) == named.resource,
        )
    if len(path) + len(query) + len(host) <= _REMEMBERED_BYTES:
        return _remembered(scheme, host, path, query)
    if len(path) + len(query) > MAX_TARGET_BYTES:
        return None
    return _compute(scheme, host, path, query)


def usual_target(scheme: str, host: bytes, path: bytes, query: bytes) -> Target | None:
    """Return what target() returns, in a fraction of its time, if spelling() is empty, there is at most one parameter, and the
    host is known. None: use target()."""
    if b"&" in query or b"?" in path or len(path) + len(query) > MAX_TARGET_BYTES:
        return None
    sent = b"%s?%s" % (path, query) if query else path
    if len(host) > _LONGEST_HOST or _USUAL.fullmatch(sent) is None:
        return None
    origin, as_sent = _origin(scheme, host)
    if origin is None:
        return None
    name = sent.decode("ascii")
    key = origin + name
    return Target(key, name, key if as_sent else _url(scheme, host, path, query))


@lru_cache(maxsize=_REMEMBERED_HOSTS)
def _origin(scheme: str, host: bytes) -> tuple[str | None, bool]:
    """Return the beginning of keys, and whether URLs begin the same; None: the host is malformed."""
    authority = host.lower().removesuffix(_DEFAULT_PORTS.get(scheme, b":"))
    malformed = bool(authority) and _HOST.fullmatch(authority) is None
    return None if malformed else f"{scheme}://{authority.decode('ascii')}", authority == host


def resource(path: bytes, query: bytes) -> str:
    """Return the Cache Sketch key of a request target, as defined in this module's docstring."""
    path = _normalise(path).replace(b"?", b"%3F") or b"/"
    if not query:
        return path.decode("ascii")
    pieces = [piece for piece in _normalise(query).split(b"&") if piece]
    pieces.sort(key=_name)
    return b"?".join((path, b"&".join(pieces)) if pieces else (path,)).decode("ascii")


def spelling(path: bytes, query: bytes) -> bytes:
    """Return a digest of a request target that is spelt differently from its resource; empty for all others.

    The digest is part of the key besides the resource. `?q=<b>` and `?q=%3Cb%3E` are one page for a handler that decodes, but
    not for a handler that prints its URL. `?sort_a=1&sort_b=1` and the reverse order are one page for a handler that looks
    parameters up, but not for one that iterates over them. Therefore only requests with the same spelling share an answer.
    """
    if b"?" not in path and _normalise(path) == path and (not query or _as_resource(query)):
        return b""
    return hashlib.blake2b(b"%d:%s%s" % (len(path), path, query), digest_size=16).digest()


def _as_resource(query: bytes) -> bool:
    """Whether a query string is spelt like the resource's."""
    whole = not (b"&&" in query or query.startswith(b"&") or query.endswith(b"&"))
    return whole and _normalise(query) == query and ordered(query) == query


def ordered(query: bytes) -> bytes:
    """Return a query string with its parameters in the resource's order: by name, equal names as they came. The same object if
    they are in order. O(size log size)."""
    if b"&" not in query:
        return query
    pieces = query.split(b"&")
    in_order = sorted(pieces, key=_name)
    return query if in_order == pieces else b"&".join(in_order)


def _compute(scheme: str, host: bytes, path: bytes, query: bytes) -> Target | None:
    origin = None if len(host) > _LONGEST_HOST else _origin(scheme, host)[0]
    if origin is None:
        return None
    name = resource(path, query)
    return Target(key=origin + name, resource=name, url=_url(scheme, host, path, query))


def _url(scheme: str, host: bytes, path: bytes, query: bytes) -> str:
    raw = path + b"?" + query if query else path
    return f"{scheme}://{host.decode('latin-1')}{raw.decode('latin-1')}"


_remembered = lru_cache(maxsize=_REMEMBERED)(_compute)


def _name(piece: bytes) -> bytes:
    return piece.partition(b"=")[0]


def _normalise(text: bytes) -> bytes:
    if _CANONICAL.fullmatch(text) is not None:
        return text
    return _UNUSUAL.sub(_escape, text)


def _escape(match: re.Match[bytes]) -> bytes:
    escaped = match.group()
    if len(escaped) == 1:
        return b"%%%02X" % escaped[0]
    value = int(escaped[1:], 16)
    return bytes((value,)) if value in _UNRESERVED else escaped.upper()
