"""Fields in which proxies describe how a request reached them, and in which a stranger can write anything. Pure.

Applications build links, redirects and `<script src>` from these fields, so an answer may depend on each of them without a
`Vary`: the classical cache poisoning. Behind a proxy every request carries them, so they cannot be a reason to bypass the cache.
Therefore they are **part of the key**: an entry made with a forged field answers only requests with the same forged field. The
client's address is no such claim: see `docs/privacy.md`.

`Forwarded` (RFC 7239) mixes both. Its `host` and `proto` are keyed. A handler whose answer may be stored sees only those two.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

CLAIMS = frozenset(
    {
        b"forwarded", b"front-end-https", b"x-forwarded-host", b"x-forwarded-path", b"x-forwarded-port",
        b"x-forwarded-prefix", b"x-forwarded-proto", b"x-forwarded-protocol", b"x-forwarded-scheme", b"x-forwarded-server",
        b"x-forwarded-ssl", b"x-forwarded-uri", b"x-host", b"x-http-host-override", b"x-original-host", b"x-replaced-path",
        b"x-scheme", b"x-script-name", b"x-url-scheme",
    }
)  # fmt: skip
MAX_CLAIM_BYTES = 2048
_PARAMETER = re.compile(rb'(?:^|[;,])\s*(host|proto)\s*=\s*("(?:[^"\\]|\\.)*"|[^;,"\s]*)', re.IGNORECASE)

Claims = tuple[tuple[bytes, bytes], ...]


def shown(name: bytes, value: bytes) -> bytes:
    """Return the part of a claim that is keyed, and visible to the handler."""
    if name != b"forwarded":
        return value
    return b";".join(b"%s=%s" % (key.lower(), given) for key, given in _PARAMETER.findall(value))


def claims(headers: Iterable[tuple[bytes, bytes]]) -> Claims:
    """Return the claims of a request, in the order they came: raw lower-case (name, value) pairs."""
    return tuple((name, shown(name, value)) for name, value in headers if name in CLAIMS)


def digest(pairs: Claims) -> str | None:
    """Return a short text for the key; None if the claims are longer than any real proxy's."""
    if sum(len(name) + len(value) for name, value in pairs) > MAX_CLAIM_BYTES:
        return None
    hashed = hashlib.blake2b(digest_size=12)
    for name, value in pairs:
        hashed.update(b"%d:%s%d:%s" % (len(name), name, len(value), value))
    return hashed.hexdigest()
