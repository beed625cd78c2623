"""Validation with the origin: whether a stored answer is still valid, and which fields of the origin's answer replace its own.

RFC 9111, sections 3.2 and 4.3. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from quaestor.read_path.freshness import Headers, http_date_s, values

_KEPT = frozenset(
    {
        b"content-encoding",
        b"content-length",
        b"content-range",
        b"content-md5",
        b"content-digest",
        b"repr-digest",
        b"etag",
    }
)
"""Fields that the stored body depends on (section 3.2): a 304 does not change them."""


def conditions(stored: Headers) -> list[tuple[bytes, bytes]]:
    """Return the fields of a request that validates an answer (section 4.3.1); [] if it has no validator of its own."""
    stored = list(stored)
    fields: list[tuple[bytes, bytes]] = []
    tags = values(stored, b"etag")
    if len(tags) == 1:
        fields.append((b"if-none-match", tags[0]))
    changed = values(stored, b"last-modified")
    if len(changed) == 1 and http_date_s(changed[0]) is not None:
        fields.append((b"if-modified-since", changed[0]))
    return fields


def confirms(stored: Headers, answer: Headers) -> bool:
    """Whether a 304 is about this answer (section 4.3.4): its validators, if it has any, are the stored ones."""
    stored, answer = list(stored), list(answer)
    tags = values(answer, b"etag")
    if tags:
        return _opaque(tags) == _opaque(values(stored, b"etag"))
    changed = values(answer, b"last-modified")
    return not changed or changed == values(stored, b"last-modified")


def freshened(stored: Headers, answer: Headers, *, dropped: frozenset[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the stored fields, replaced by the fields of a newer answer where it has them (section 3.2).

    dropped: names of fields of one connection.
    """
    stored = list(stored)
    new = [(name, value) for name, value in answer if name not in dropped and name not in _KEPT]
    replaced = {name for name, _ in new}
    return (*((name, value) for name, value in stored if name not in replaced and name not in dropped), *new)


def head_agrees(stored: Headers, answer: Headers) -> bool:
    """Whether a HEAD's 200 is about the stored answer (section 4.3.5): no validator and no length contradicts it."""
    stored, answer = list(stored), list(answer)
    for name in (b"etag", b"last-modified", b"content-length"):
        answered, known = values(answer, name), values(stored, name)
        if answered and known and answered != known:
            return False
    return True


def _opaque(tags: Iterable[bytes]) -> list[bytes]:
    """Return the tags for weak comparison."""
    return [tag.removeprefix(b"W/") for tag in tags]
