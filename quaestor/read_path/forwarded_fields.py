"""Fields by which proxies say how a request reached them, and by which a stranger can say anything. Pure.

Applications build links, redirects and `<script src>` from them, so an answer may depend on every one of them although no
`Vary` says so: the classical cache poisoning. Behind a proxy they are on every request, so they cannot be a reason to keep out.
They are therefore **part of the key**: a forged one makes an entry that only requests with the same forged one are given. The
client's address is no such claim: see `docs/privacy.md`.

`Forwarded` (RFC 7239) mixes both. Its `host` and `proto` are keyed, and they are all of it that a handler is shown whose answer
may be stored.
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
    """The part of a claim that is keyed, and shown to the handler."""
    if name != b"forwarded":
        return value
    return b";".join(b"%s=%s" % (key.lower(), given) for key, given in _PARAMETER.findall(value))


def claims(headers: Iterable[tuple[bytes, bytes]]) -> Claims:
    """The claims of a request, in the order they came: raw lower-case (name, value) pairs."""
    return tuple((name, shown(name, value)) for name, value in headers if name in CLAIMS)


def digest(found: Claims) -> str | None:
    """A short text for the key; None if there is more than anybody's proxy sends."""
    if sum(len(name) + len(value) for name, value in found) > MAX_CLAIM_BYTES:
        return None
    hashed = hashlib.blake2b(digest_size=12)
    for name, value in found:
        hashed.update(b"%d:%s%d:%s" % (len(name), name, len(value), value))
    return hashed.hexdigest()
