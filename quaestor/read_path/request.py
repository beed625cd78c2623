"""Facts in a request's header fields that matter for answering it from a cache. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from quaestor.fast_init import fast_init
from quaestor.read_path.forwarded_fields import CLAIMS, Claims, shown
from quaestor.read_path.freshness import cache_control

_NAMED = CLAIMS | frozenset(
    {
        b"authorization",
        b"cache-control",
        b"content-length",
        b"cookie",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"pragma",
        b"proxy-authorization",
        b"quaestor-known",
        b"range",
        b"transfer-encoding",
        b"x-http-method",
        b"x-http-method-override",
        b"x-method-override",
        b"x-original-url",
        b"x-rewrite-url",
    }
)
KNOWN = b"quaestor-known"
"""The field by which a shared cache says what its clients hold while they wait: caches take conditions out of their fetches."""
_CREDENTIALS = re.compile(
    rb"auth|token|api-?key|jwt|oidc|session|secret|credential|passw|identity|client-cert|ssl-client|tenant|account|-user"
    rb"|user-(?!agent)"
)
"""Names of fields in which applications and proxies commonly identify a client: X-Api-Key, X-Auth-Token, X-Forwarded-User ..."""
_REMEMBERED = 2048
_REMEMBERED_HOSTS, _LONGEST_HOST = 256, 512


class Notable(dict[bytes, bool]):
    """Verdicts by field name: whether a field needs a closer look. Computed once per name, within bounds."""

    def __missing__(self, name: bytes) -> bool:
        notable = self.judge(name)
        if len(self) < _REMEMBERED:
            self[name] = notable
        return notable

    def judge(self, name: bytes) -> bool:
        """Whether a field needs a closer look."""
        # Browsers set Sec-* themselves; Sec-Fetch-User describes how a page was opened, not by which user.
        # CGI and WSGI do not distinguish X_Forwarded_Host from X-Forwarded-Host, so the app below a bridge may receive either.
        plain = name.replace(b"_", b"-")
        return plain in _NAMED or (not plain.startswith(b"sec-") and _CREDENTIALS.search(plain) is not None)


NOTABLE: Mapping[bytes, bool] = Notable()
"""The fields that require a closer look at a request. Use NOTABLE[name].

A GET without any of them (claims, `forwarded_fields.CLAIMS`, aside) and with at most one Host is answered from memory at once.
"""

CONDITIONS = frozenset({b"if-none-match", b"if-modified-since"})
"""Conditions. The cache evaluates them against the full answer, and hides them from a handler whose answer may be stored."""

_PERSONAL = {b"authorization": "authorization", b"proxy-authorization": "authorization", b"cookie": "cookie"}
_BODY = frozenset({b"content-length", b"transfer-encoding"})
_REWRITES = frozenset(
    {b"x-http-method", b"x-http-method-override", b"x-method-override", b"x-original-url", b"x-rewrite-url"}
)
"""Fields by which some frameworks change the requested method or path; they are not part of the key."""
_PRECONDITIONS = frozenset({b"if-match", b"if-unmodified-since"})
"""Conditions that only the origin may evaluate (RFC 9111, section 4.3.2)."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """The facts in a request's header fields that matter for answering it from a cache.

    host: empty if absent.
    bypass: why the request bypasses the cache unless its route declares otherwise, or None; `authorization` if that is the only
        reason.
    barred: why it bypasses the cache whatever the route declares, or None.
    personal: the request carries credentials.
    unlisted: names of fields that are its only credentials, and that no list names (`unlisted_fields`).
    has_body: it carries a body.
    claims: see `forwarded_fields`.
    partial: it asks for a part of the answer; such an answer is not stored as a whole.
    byte_range, if_range: the fields of that name.
    no_store, only_if_cached: of directives.
    directives: of Cache-Control (RFC 9111, section 5.2.1); without Cache-Control, `Pragma: no-cache` counts as no-cache
        (section 5.4).

    Guarded entries ignore `no-cache`, `max-age`, `min-fresh` and `Pragma`. Invalidation is exact for them, so the store's
    answer is the origin's answer; the fields still pass through every cache before this one. Explicit entries honour the four
    (see `reuse`).
    """

    host: bytes
    bypass: str | None = None
    barred: str | None = None
    personal: bool = False
    unlisted: frozenset[bytes] = frozenset()
    has_body: bool = False
    claims: Claims = ()
    partial: bool = False
    no_store: bool = False
    only_if_cached: bool = False
    if_none_match: bytes | None = None
    if_modified_since: bytes | None = None
    byte_range: bytes | None = None
    if_range: bytes | None = None
    directives: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def authorization_only(self) -> bool:
        """Whether `Authorization` is the request's only credential."""
        return self.bypass == "authorization"

    @property
    def plain(self) -> bool:
        """Whether the request asks for the whole answer as it is stored, and for nothing else."""
        return not (
            self.partial
            or self.has_body
            or self.directives
            or self.if_none_match is not None
            or self.if_modified_since is not None
        )


def inspect(headers: Sequence[tuple[bytes, bytes]], notable: Mapping[bytes, bool] = NOTABLE) -> RequestFacts:
    """Return the facts of a request, in one pass over raw lower-case (name, value) pairs.

    notable: fields that need a closer look; in front of an origin `unlisted_fields.UnlistedFields`.
    """
    only_host: bytes | None = None
    for name, value in headers:
        if name == b"host":
            if only_host is not None:
                break
            only_host = value
        elif notable[name]:
            break
    else:
        host = only_host or b""
        return _ordinary(host) if len(host) <= _LONGEST_HOST else RequestFacts(host=host)
    hosts: list[bytes] = []
    claims: list[tuple[bytes, bytes]] = []
    barred: str | None = None
    personal: str | None = None
    has_body = partial = False
    if_none_match: list[bytes] = []
    if_modified_since: bytes | None = None
    ranges: list[bytes] = []
    if_range: bytes | None = None
    directives = pragma = False
    unlisted: set[bytes] = set()
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif not notable[name]:
            continue
        elif name in _PERSONAL:
            personal = _PERSONAL[name] if personal in (None, "authorization") else personal
        elif name in CLAIMS:
            claims.append((name, shown(name, value)))
        elif name == b"if-none-match":
            if_none_match.append(value)
        elif name == b"if-modified-since":
            if_modified_since = value
        elif name == b"cache-control":
            directives = True
        elif name == b"pragma":
            pragma = pragma or value.strip().lower() == b"no-cache"
        elif name == KNOWN:
            continue  # of long polls through a shared cache; a handler sees it as any other field
        elif name == b"range":
            ranges.append(value)
            partial = True
        elif name == b"if-range":
            if_range = value
            partial = True
        elif name in _PRECONDITIONS:
            barred = barred or "precondition"
        elif name in _REWRITES:
            barred = barred or "override"
        elif name in _BODY:
            has_body = has_body or value != b"0"
        elif b"_" in name and name.replace(b"_", b"-") in _NAMED:
            barred = barred or "override"
        elif not NOTABLE[name]:
            unlisted.add(name)
        elif personal in (None, "authorization"):
            personal = "credentials"
    if unlisted and personal in (None, "authorization"):
        unlisted = unlisted if personal is None else set()
        personal = "credentials"
    else:
        unlisted = set()
    if len(hosts) > 1:
        barred = barred or "host"
    requested: Mapping[str, str | None] = cache_control(headers) if directives else {}
    if pragma and not directives:
        requested = {"no-cache": None}
    return RequestFacts(
        host=hosts[0] if hosts else b"",
        bypass=personal or barred or ("request-body" if has_body else None),
        barred=barred,
        personal=personal is not None,
        unlisted=frozenset(unlisted),
        has_body=has_body,
        claims=tuple(claims),
        partial=partial,
        no_store="no-store" in requested,
        only_if_cached="only-if-cached" in requested,
        if_none_match=b", ".join(if_none_match) if if_none_match else None,
        if_modified_since=if_modified_since,
        byte_range=ranges[0] if len(ranges) == 1 else None,
        if_range=if_range,
        directives=requested,
    )


@lru_cache(maxsize=_REMEMBERED_HOSTS)
def _ordinary(host: bytes) -> RequestFacts:
    """The facts of a request without any notable field."""
    return RequestFacts(host=host)
