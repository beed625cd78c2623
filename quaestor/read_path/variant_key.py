"""The variant part of the key, for everything that distinguishes answers besides the URL: audience, declared fields, claims,
body. Pure.

All of it becomes one length-prefixed digest behind the key. Two different requests never write the same bytes: a user
`ann` with a cookie `b=c` shares no key with another user. The key holds personal data as this digest only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from quaestor.policy import RoutePolicy
from quaestor.read_path import forwarded_fields
from quaestor.read_path.forwarded_fields import Claims

Headers = Sequence[tuple[bytes, bytes]]
_PLAIN_COOKIES = re.compile(rb'[^\s";,=]+=[^\s";,]*(?:; ?[^\s";,=]+=[^\s";,]*)*')
_BODY_FIELDS = frozenset({b"content-type", b"content-encoding", b"content-language"})
COVERED_BY_AUDIENCE = frozenset({b"authorization", b"cookie"})
"""Fields in a `Vary` that `by` has already covered."""


def selection(
    policy: RoutePolicy,
    headers: Headers,
    *,
    claimed: Claims = (),
    audience: str | None = None,
    method: str = "GET",
    body: bytes | None = None,
) -> str | None:
    """Return the text to append to the key; empty if the URL alone decides, None if it cannot be keyed. O(size of the body).

    claimed: fields in which proxies describe how the request reached them.
    audience: the result of `policy.by`.
    body: of a request that is keyed by it.
    """
    parts: list[bytes] = []
    if claimed:
        known = forwarded_fields.digest(claimed)
        if known is None:
            return None
        parts += (b"claims", known.encode())
    if policy.personal:
        if not audience:
            return None
        parts += (policy.sharing.value.encode(), audience.encode("utf-8", "surrogatepass"))
    for name in policy.headers:
        values = [value for field, value in headers if field == name]
        parts += (b"header", name, b"%d" % len(values), *values)
    if policy.cookies:
        parts += (b"cookies", *cookie_values(headers, frozenset(name.encode() for name in policy.cookies)))
    if body is not None:
        described = [piece for field in headers if field[0] in _BODY_FIELDS for piece in field]
        parts += (b"body", method.encode(), b"%d" % len(described), *described, body)
    return f"#s{_digest(parts)}" if parts else ""


def covered(policy: RoutePolicy) -> frozenset[bytes]:
    """Return the request fields that a `Vary` need not add to the key, because selection() covers them."""
    names = forwarded_fields.CLAIMS.union(policy.headers)
    return names.union(COVERED_BY_AUDIENCE, policy.reads or ()) if policy.personal else names


def cookie_values(headers: Headers, names: frozenset[bytes]) -> list[bytes]:
    """Return the declared cookies as sent, repeated ones in order. A field that parsers read differently counts as a whole.

    Empty if none of the cookies is there.
    """
    cookies: list[bytes] = []
    for field, value in headers:
        if field != b"cookie":
            continue
        if _PLAIN_COOKIES.fullmatch(value) is None:
            cookies += (b"", value)
            continue
        for piece in value.split(b";"):
            name, _, text = piece.strip().partition(b"=")
            if name in names:
                cookies += (name, text)
    return cookies


def _digest(parts: Iterable[bytes]) -> str:
    hashed = hashlib.blake2b(digest_size=20)
    for part in parts:
        hashed.update(b"%d:" % len(part))
        hashed.update(part)
    return hashed.hexdigest()
