"""Entity tags of records and lists, and the conditions that clients put on them (RFC 9110, sections 8.8.3 and 13.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from starlette.requests import Request

from quaestor.rest.limits import Limits
from quaestor.rest.problems import Problem

_DIGEST_BYTES: Final = 16
_TAG: Final = re.compile(r'\s*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")\s*')


def record_etag(raw: bytes) -> str:
    """Return the entity tag of a record.

    Strong and quoted, made of a record's BSON: any other byte gives another tag, so types and the order of fields count.
    """
    return f'"{blake2b(raw, digest_size=_DIGEST_BYTES).hexdigest()}"'


def list_etag(kind: str, parts: Iterable[bytes]) -> str:
    """Return the entity tag of a list, from its contents, in order.

    kind: distinguishes representations of the same list.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES, person=kind.encode()[:16])
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return f'"{digest.hexdigest()}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """Preconditions of a request.

    match: the tags of If-Match; ("*",) for any; None if absent.
    none_match: the tags of If-None-Match, in the same form.
    """

    match: tuple[str, ...] | None = None
    none_match: tuple[str, ...] | None = None

    @classmethod
    def of(cls, request: Request, limits: Limits) -> Preconditions:
        """Return the preconditions of a request that changes a record.

        Raises Problem: 400 for malformed tags, 428 if a precondition is required.
        """
        preconditions = cls(match=_tags(request, "if-match"), none_match=_tags(request, "if-none-match"))
        if limits.require_preconditions and preconditions.match is None and preconditions.none_match is None:
            raise Problem(428, "precondition-required", "Send If-Match with the record's ETag, or If-None-Match: *.")
        return preconditions

    @property
    def absent(self) -> bool:
        """Whether there are no preconditions."""
        return self.match is None and self.none_match is None

    @property
    def create_only(self) -> bool:
        """Whether a record may only be created, never replaced."""
        return self.match is None and self.none_match == ("*",)

    def require(self, etag: str | None, *, readable: bool = True) -> None:
        """Check the preconditions against a record.

        etag: of the record as it is; None: there is none. Raises Problem (412). Strong comparison for If-Match.
        readable: the caller may read the record. Otherwise no tag matches: a tag is made of the record's bytes, so a match would
            confirm a guess of the bytes.
        """
        if (
            etag is not None
            and not readable
            and any(tags not in (None, ("*",)) for tags in (self.match, self.none_match))
        ):
            raise failed("You may not read this record, so you cannot send its tag: send *, or no precondition.")
        if self.match is not None and (etag is None or (self.match != ("*",) and etag not in self.match)):
            raise failed("The record is not, or no longer, the one that If-Match names: read it again.")
        if self.none_match is None or etag is None:
            return
        if self.none_match == ("*",):
            raise failed("There is a record already.")
        if etag in (tag.removeprefix("W/") for tag in self.none_match):
            raise failed("The record is one that If-None-Match names.")


def failed(detail: str) -> Problem:
    """Return the problem (412) of a failed precondition."""
    return Problem(412, "precondition-failed", detail)


def _tags(request: Request, name: str) -> tuple[str, ...] | None:
    values = request.headers.getlist(name)
    if not values:
        return None
    text = ",".join(values)
    if text.strip() == "*":
        return ("*",)
    tags: list[str] = []
    at = 0
    while at < len(text):
        match = _TAG.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise Problem(400, "header-malformed", f"{name} must be * or a list of quoted entity tags", position=at)
        tags.append(match[1])
        at = match.end() + 1
    return tuple(tags)
