"""Invalidation by unsafe requests: which entries a request makes stale, after RFC 9111, section 4.4, and RFC 9875. Pure.

Guarded entries need none of this: the writes of a request kill them. This concerns explicit entries, and the groups that answers
name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from quaestor.read_path import structured
from quaestor.read_path.freshness import Headers, values
from quaestor.read_path.key import Target, target

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PROPFIND", "REPORT", "SEARCH"})
"""Methods defined as safe (IANA's method registry); every other method may have changed something."""
EVERYTHING = "u:*"
"""The label of every explicit entry."""
MAX_GROUPS = 128
"""Groups read from one field; RFC 9875, section 2, demands 32."""
MAX_GROUP_CHARACTERS = 256
"""Longest name of a group; RFC 9875 demands 32."""


@dataclass(frozen=True, slots=True)
class Outdated:
    """Everything that one unsafe request makes stale.

    keys: primary cache keys whose answers, in every variant, must no longer be used.
    groups: names, of one origin.
    """

    keys: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keys or self.groups)


def outdated(method: str, status: int, headers: Headers, requested: Target) -> Outdated:
    """Return everything that the answer to this request makes stale. Nothing if the method is safe or the answer is an error.

    That is the target itself, same-origin URIs in Location and Content-Location, and the groups that the answer names.
    """
    if method in SAFE or not 200 <= status < 400:
        return Outdated()
    headers = list(headers)
    keys = [requested.key]
    for name in (b"location", b"content-location"):
        for value in values(headers, name):
            key = _same_origin(requested, value)
            if key is not None:
                keys.append(key)
    return Outdated(tuple(dict.fromkeys(keys)), groups(headers, b"cache-group-invalidation"))


def groups(headers: Headers, field: bytes) -> tuple[str, ...]:
    """Return the groups that a field names; none if it is malformed. Compared character by character (RFC 9875, section 2)."""
    names = structured.strings(values(headers, field)) or ()
    return tuple(dict.fromkeys(name for name in names if len(name) <= MAX_GROUP_CHARACTERS))[:MAX_GROUPS]


def origin(key: str) -> str:
    """Return scheme and authority of a primary cache key."""
    scheme, _, rest = key.partition("://")
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    return f"{scheme}://{rest[:end]}"


def uri_label(key: str) -> str:
    """Return the label of every explicit entry under a primary key, in all variants."""
    return f"u:{_digest(key)}"


def group_label(key_origin: str, group: str) -> str:
    """Return the label of every entry of a group. Equal names of different origins are different groups."""
    return f"g:{_digest(f'{key_origin} {group}')}"


def is_label(registration_id: str) -> bool:
    """Whether a registration id is a label of many entries, and therefore never dies itself."""
    return registration_id[1:2] == ":" and registration_id[0] in "ug"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _same_origin(requested: Target, reference: bytes) -> str | None:
    """Return the cache key that a URI reference names, if it is on the requested origin."""
    try:
        named: SplitResult = urlsplit(urljoin(requested.url, reference.decode("ascii").strip()))
    except ValueError:
        return None
    referenced = target(
        named.scheme, named.netloc.encode("latin-1", "replace"), named.path.encode(), named.query.encode()
    )
    return referenced.key if referenced is not None and origin(referenced.key) == origin(requested.key) else None
