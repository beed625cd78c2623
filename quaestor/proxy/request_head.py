"""Head of a request as a proxy reads it: once, before any other part reads it, and with one meaning only.

An ambiguous head is refused and not repaired (RFC 9112, section 11.2).
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from quaestor.middleware.interface import Scope
from quaestor.proxy import fields
from quaestor.proxy.protocol import TARGET

MAX_FIELDS = 200
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.\-]{1,253})(?::[0-9]{1,5})?")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_REMEMBERED = 2048


class Refusal(NamedTuple):
    """Refusal of a request: the answer that is given instead of sending the request on."""

    status: int
    detail: str
    close: bool = True


class _Kind(IntEnum):
    """Kind of a request's field, by its meaning for a proxy."""

    ORDINARY = 0
    DROPPED = 1
    CLAIM = 2
    HOST = 3
    LENGTH = 4
    CODING = 5
    EXPECTATION = 6
    VIA = 7
    CONNECTION = 8


_NAMED = {
    b"host": _Kind.HOST,
    b"content-length": _Kind.LENGTH,
    b"transfer-encoding": _Kind.CODING,
    b"expect": _Kind.EXPECTATION,
    b"via": _Kind.VIA,
    b"connection": _Kind.CONNECTION,
    b"quaestor-depends": _Kind.DROPPED,
}
"""Fields with a meaning for the proxy. The server has answered `Expect`; only origins may send `Quaestor-Depends`."""


class _Kinds(dict[bytes, _Kind]):
    """Kinds of fields by name, computed once for each name, in bounded memory."""

    def __missing__(self, name: bytes) -> _Kind:
        kind = _NAMED.get(name, _Kind.ORDINARY)
        if kind is _Kind.ORDINARY and fields.is_hop_by_hop(name):
            kind = _Kind.DROPPED
        elif fields.is_claim(name):
            kind = _Kind.CLAIM
        if len(self) < _REMEMBERED:
            self[name] = kind
        return kind


_kinds = _Kinds()


class RequestHead:
    """Head of a request, read in one pass over its fields: the fields that decide its meaning, and the fields that are sent
    on."""

    __slots__ = ("_kept", "_of", "_values")

    def __init__(self, headers: list[tuple[bytes, bytes]], *, trust: bool) -> None:
        self._kept: fields.RawHeaders = []
        self._of: dict[_Kind, list[bytes]] = {}
        self._values: list[bytes] = []
        for name, value in headers:
            value = value.strip(b" \t")
            self._values.append(value)
            kind = _kinds[name]
            if not kind:
                self._kept.append((name, value))
                continue
            self._of.setdefault(kind, []).append(value)
            if _Kind.HOST <= kind <= _Kind.CODING or (trust and kind is _Kind.CLAIM):
                self._kept.append((name, value))

    def refusal(self, method: str, version: str, hosts: frozenset[str]) -> Refusal | None:
        """Refusal of this request, or None if it is sent on."""
        of = self._of
        if len(self._values) > MAX_FIELDS:
            return Refusal(431, f"More than {MAX_FIELDS} header fields.")
        if fields.CONTROLS.search(b" ".join(self._values)):
            return Refusal(400, "A control character in a header field.")
        refusal = _method(method) or _host(of.get(_Kind.HOST, []), version, hosts)
        if refusal is not None or (len(of) == 1 and _Kind.HOST in of):  # nothing else to look at
            return refusal
        if any(value.lower() != b"100-continue" for value in of.get(_Kind.EXPECTATION, ())):
            return Refusal(417, "The only expectation here is 100-continue.")
        if fields.hops(of.get(_Kind.VIA, ())) >= fields.MAX_HOPS:
            return Refusal(508, "This request has come through here several times.")
        return _framing(of.get(_Kind.LENGTH, []), of.get(_Kind.CODING, []), version)

    def cleaned(self, version: str, *, authority: bytes) -> fields.RawHeaders:
        """Fields that are sent on: without the connection's own, with this hop in `Via`, and always with a Host."""
        kept = self._kept
        if _Kind.CONNECTION in self._of:
            kept = fields.without_named(kept, self._of[_Kind.CONNECTION])
        if _Kind.HOST not in self._of:
            kept.insert(0, (b"host", authority))
        kept.append(fields.via(self._of.get(_Kind.VIA, ()), version=version))
        return kept


def _method(method: str) -> Refusal | None:
    if method == "CONNECT":
        return Refusal(501, "This is no tunnel.")
    if method == "TRACE":
        return Refusal(405, "TRACE would show what other parties added to the request.")
    return None


def _host(given: list[bytes], version: str, hosts: frozenset[str]) -> Refusal | None:
    if len(given) > 1:
        return Refusal(400, "More than one Host field.")
    if not given:
        return None if version == "1.0" and not hosts else Refusal(400, "A request without a Host field.")
    if _HOST.fullmatch(given[0]) is None:
        return Refusal(400, "The Host field is not host or host:port.")
    if hosts and re.sub(r":[0-9]+$", "", given[0].decode("ascii")).lower() not in hosts:
        return Refusal(421, "This host is not served here.", close=False)
    return None


def _framing(lengths: list[bytes], codings: list[bytes], version: str) -> Refusal | None:
    """Refusal of a request that does not give its length in exactly one way (RFC 9112, section 6.3); else None."""
    if codings and lengths:
        return Refusal(400, "Content-Length beside Transfer-Encoding.")
    if codings and version == "1.0":
        return Refusal(400, "Transfer-Encoding in an HTTP/1.0 request.")
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked"):
        return Refusal(501, "The only transfer coding here is chunked.")
    if len(lengths) > 1 or (lengths and _DIGITS.fullmatch(lengths[0]) is None):
        return Refusal(400, "Content-Length is not one number.")
    return None


def target_of(scope: Scope) -> bytes:
    """Request target to ask the origin for, as it was received, except for changes that the cache makes to the query."""
    exact: bytes | None = (scope.get("extensions") or {}).get(TARGET)
    path: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "replace")
    query: bytes = scope["query_string"]
    if exact is not None:
        path, _, given = exact.partition(b"?")
        if given == query:
            return exact
    return path + b"?" + query if query else path
