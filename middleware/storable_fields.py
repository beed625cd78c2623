"""The header fields of an answer that are stored: all except those of one connection. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from quaestor.middleware.interface import RawHeaders

CONNECTION = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authentication-info", b"proxy-connection",
        b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
"""Fields of one connection: neither stored nor taken over from a 304 (RFC 9111, sections 3.1 and 3.2)."""


def of_connection(fields: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the names of fields that belong to one connection: the known ones, and the names in Connection."""
    named = b",".join(value for name, value in fields if name == b"connection").lower()
    return CONNECTION | {token.strip() for token in named.split(b",")}


def storable(headers: Iterable[tuple[bytes, bytes]], body: bytes, *, status: int) -> RawHeaders | None:
    """Return the fields to store: lower-case names, no fields of one connection, and a Content-Length.

    None if the handler's Content-Length differs from the body's: then the answer is not whole.
    """
    fields = [(name.lower(), value) for name, value in headers]
    kept = [field for field in fields if field[0] not in CONNECTION]
    if len(kept) < len(fields):
        dropped = of_connection(fields)
        kept = [(name, value) for name, value in fields if name not in dropped]
    lengths = {value for name, value in kept if name == b"content-length"}
    if not lengths:
        return kept if status == 204 else [*kept, (b"content-length", b"%d" % len(body))]
    return kept if lengths == {b"%d" % len(body)} else None
