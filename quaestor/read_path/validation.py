"""Entity tags and conditional requests: RFC 9110, sections 8.8 and 13, as pure functions."""

from __future__ import annotations

import hashlib
import re

from quaestor.read_path.freshness import Headers, http_date_s, values

_MAX_FIELD_BYTES = 8192
_ENTITY_TAG = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')


def strong_etag(body: bytes) -> bytes:
    """Return a quoted strong entity tag: 128 bits of the body's SHA-256. The same in every process. O(size)."""
    return b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode("ascii")


def valid_etag(value: bytes) -> bool:
    """Whether this is a well-formed entity tag, weak or strong."""
    return _ENTITY_TAG.fullmatch(value) is not None


def none_match_fails(if_none_match: bytes, etag: bytes) -> bool:
    """Whether If-None-Match names this tag, by weak comparison (section 13.1.2): then the answer is 304.

    Malformed or very long fields name nothing.
    """
    if if_none_match == etag:
        return True
    if len(if_none_match) > _MAX_FIELD_BYTES:
        return False
    if if_none_match.strip() == b"*":
        return True
    opaque = etag.removeprefix(b"W/")
    return any(tag.removeprefix(b"W/") == opaque for tag in _ENTITY_TAG.findall(if_none_match))


def holds(headers: Headers, *, if_none_match: bytes | None, if_modified_since: bytes | None) -> bool:
    """Whether a client's conditions show that it has the answer with these fields (section 13.2.2): then it receives a 304.

    Only the answer's own validators count, and each only if it occurs once.
    """
    headers = list(headers)
    if if_none_match is not None:
        tags = values(headers, b"etag")
        if len(tags) == 1 and valid_etag(tags[0]):
            return none_match_fails(if_none_match, tags[0])
        return if_none_match.strip() == b"*"
    changed = values(headers, b"last-modified")
    return if_modified_since is not None and len(changed) == 1 and not modified_since(if_modified_since, changed[0])


def strong_last_modified(headers: Headers, *, made_s: float | None = None) -> bytes | None:
    """Return Last-Modified if it lies at least a second before the answer was made (section 8.8.2.2): there could be two versions
    within one second. None: it does not, or the time is unknown.

    made_s: when the answer was made, if there is not exactly one Date.
    """
    headers = list(headers)
    changed, made = values(headers, b"last-modified"), values(headers, b"date")
    made_s = http_date_s(made[0]) if len(made) == 1 else made_s
    changed_s = http_date_s(changed[0]) if len(changed) == 1 else None
    return changed[0] if changed_s is not None and made_s is not None and changed_s + 1 <= made_s else None


def modified_since(if_modified_since: bytes, last_modified: bytes | None) -> bool:
    """Whether If-Modified-Since is true (section 13.1.3). False only if both are dates and the second is not later than the
    first: then the answer is 304."""
    asked_s = http_date_s(if_modified_since)
    changed_s = None if last_modified is None else http_date_s(last_modified)
    return asked_s is None or changed_s is None or changed_s > asked_s
